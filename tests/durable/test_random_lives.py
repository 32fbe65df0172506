"""Random lives of durable sessions: turns, cuts, cancels, rest, faults and deaths in any order."""

import random
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from kernel.actors.reply import Reply
from kernel.ids import SCHEDULER, SessionId
from kernel.messages import ExportSession, Hibernate, RestoreMark, Rewind, SetMark
from kernel.sessions.session import SessionActor
from kernel.testing.invariants import always, at_rest
from kernel.turn import TurnRequest
from tests.durable.worlds import Durable, settled
from tests.kernel.loopless import error_of, read, tokens_of

MOVES = 70


@attrs.define(eq=False)
class Life:
    """One engine, a few sessions, and everything that they were asked."""

    world: Durable
    draw: random.Random
    names: tuple[str, ...] = ("a", "b", "c")
    requests: list[TurnRequest] = attrs.field(factory=list[TurnRequest])
    replies: list[Reply[Any]] = attrs.field(factory=list[Reply[Any]])
    deaths: int = 0

    def session(self) -> SessionActor | None:
        """A session that is in memory, if need be after it was opened or woken."""
        name = SessionId(self.draw.choice(self.names))
        world = self.world
        actor = world.core.sessions.get(name)
        if actor is not None:
            return actor
        stored = world.core.stored
        assert stored is not None
        if not stored.holds(name):
            return world.session(name)
        stored.wake(name)
        world.run()
        return None

    def step(self) -> None:
        moves: list[tuple[int, Callable[[], None]]] = [
            (8, self._turn),
            (2, self._append),
            (2, self._cancel),
            (3, self._interrupt),
            (2, self._history),
            (3, self._hibernate),
            (1, self._export),
            (1, self._fork),
            (1, self._close),
            (12, self._device),
            (8, self._transfer),
            (14, self._disk),
            (2, self._fault),
            (1, self._death),
        ]
        weights = [weight for weight, _ in moves]
        self.draw.choices([move for _, move in moves], weights)[0]()
        self.check()

    def check(self) -> None:
        core = self.world.core
        assert always(core, deaths=self.deaths, reclaims=self.deaths > 0) == []
        for actor in core.sessions.values():
            archive = actor.archive
            if archive is not None and archive.is_whole:
                assert self.world.disk.log_of(actor.session_id) == list(actor.state.log)

    def _turn(self) -> None:
        session = self.session()
        if session is not None and not session.is_closed:
            tokens = [self.draw.randrange(900) for _ in range(self.draw.randint(1, 6))]
            wait = self.draw.random() < 0.5
            self.requests.append(self.world.start(session, tokens, wait=wait))

    def _append(self) -> None:
        session = self.session()
        if session is not None and not session.is_closed:
            tokens = [self.draw.randrange(900) for _ in range(self.draw.randint(1, 3))]
            self.requests.append(self.world.start(session, tokens, kind="append"))

    def _open_request(self) -> tuple[SessionActor, TurnRequest] | None:
        session = self.session()
        if session is None or session.active is None:
            return None
        return session, session.active.request

    def _cancel(self) -> None:
        found = self._open_request()
        if found is not None:
            self.world.cancel(*found)

    def _interrupt(self) -> None:
        session = self.session()
        if session is not None:
            for request in self.requests:
                read(request)
            keep = self.draw.choice([None, 0, 1, 2])
            self.replies.append(self.world.interrupt(session, keep))

    def _history(self) -> None:
        session = self.session()
        if session is not None:
            reply: Reply[int] = Reply()
            self.replies.append(reply)
            name = self.draw.choice("xy")
            messages = [Rewind(-1, reply), SetMark(name, reply), RestoreMark(name, reply)]
            self.world.post(session, self.draw.choice(messages))

    def _hibernate(self) -> None:
        session = self.session()
        if session is not None:
            self.world.post(session, Hibernate())

    def _export(self) -> None:
        session = self.session()
        if session is not None:
            reply: Reply[Any] = Reply()
            self.replies.append(reply)
            self.world.post(session, ExportSession(reply))

    def _fork(self) -> None:
        parent = self.session()
        name = SessionId(self.draw.choice(self.names))
        if parent is not None and not parent.is_closed and not self.world.core.knows(name):
            self.world.session(name, parent=parent)

    def _close(self) -> None:
        session = self.session()
        if session is not None and self.draw.random() < 0.5:
            self.world.close(session)

    def _device(self) -> None:
        if self.world.device.waiting:
            self.world.step()

    def _transfer(self) -> None:
        if self.world.device.waiting_transfers:
            self.world.device.complete_transfer()
            self.world.run()

    def _disk(self) -> None:
        self.world.work(1)

    def _fault(self) -> None:
        disk, device = self.world.disk, self.world.device
        match self.draw.randrange(4):
            case 0:
                disk.fail_next.append("full")
            case 1:
                device.fail_next_transfer()
            case 2:
                device.fail_next()
            case _:
                for name in disk.sessions:
                    disk.damage_snapshot(name)

    def _death(self) -> None:
        self.deaths += 1
        if self.draw.random() < 0.6:
            self.world.kill_store()
        else:
            self.world.core.dispatcher.kill(SCHEDULER, RuntimeError("planted"))
            self.world.run()

    def settle(self) -> None:
        """Faults stop; whatever is open ends."""
        self.world.disk.fail_next.clear()
        self.world.rest()
        self.check()
        assert at_rest(self.world.core) == []
        for request in self.requests:
            assert request.output.end is not None, request.id
        for reply in self.replies:
            assert reply.is_settled


@pytest.mark.parametrize(
    "seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 200))]
)
def test_whatever_happens_the_disk_holds_what_was_told_and_nobody_waits_for_ever(
    seed: int,
) -> None:
    """And every session goes on from there as one that never saw any of it."""
    draw = random.Random(seed)
    world = Durable.on(
        max_restarts=1000,
        num_slots=draw.choice([1, 2, 6]),
        host_memory_bytes=draw.choice([0, 64]),
        max_resident_sessions=draw.choice([1, 100]),
    )
    life = Life(world, draw)
    for _ in range(MOVES):
        life.step()
    life.settle()
    logs = {name: world.disk.log_of(name) for name in world.disk.sessions}
    live = {actor.session_id: list(actor.state.log) for actor in world.core.sessions.values()}

    assert {name: log for name, log in live.items() if log} == {
        name: logs[name] for name, log in live.items() if log
    }
    reborn = Durable.on(world.crash())
    for name, log in logs.items():
        if log:
            assert goes_on(reborn, name) == computed_from(log)


def goes_on(world: Durable, name: str) -> list[int]:
    """The next turn of a session that is woken."""
    request = world.start(world.wake(name), [5])
    world.rest()
    assert error_of(request) is None
    assert not world.device.poison_reads
    return tokens_of(request)


def computed_from(log: list[int]) -> list[int]:
    """The same turn on the same log, in an engine that has seen nothing else."""
    world = Durable.on()
    request = world.start(world.session("cold"), [*log, 5])
    world.rest()
    assert settled(request.accepted) is None
    return tokens_of(request)
