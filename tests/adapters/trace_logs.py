"""Real event logs, each a pure function of its seed: of engines, and of ledgers with a cache."""

import io
import json
import random

import attrs

from adapters.fake_device import FakeDevice
from adapters.logs import event_logger
from kernel.errors import TenureError
from kernel.params import SamplingParams
from kernel.probe import EventProbe
from kernel.sessions.session import SessionActor
from kernel.turn import TurnRequest
from ownership import (
    ZEROS,
    Absorbed,
    Base,
    BaseName,
    BatchOwned,
    BatchPort,
    CacheOwned,
    CachePort,
    Capacity,
    Consume,
    CustodianId,
    Ledger,
    Need,
    Owns,
    Place,
    Refused,
    SessionOwned,
    SessionPort,
    StepFailed,
)
from tests.kernel.loopless import Loopless

__all__ = ["engine_log", "ledger_log", "long_log", "names_in"]

CACHE = CustodianId("cache")
SESSION = CustodianId("session:a")
SCHEDULER = CustodianId("scheduler")


def names_in(lines: list[str]) -> set[str]:
    """The events that a log holds."""
    return {json.loads(line)["event"] for line in lines}


class _Quiet(Loopless):
    """Audits at the end only: an audit is an event too, and the log should hold others."""

    def check(self) -> None:
        """Leave it to the end."""


@attrs.define(eq=False)
class _EngineTraffic:
    """Sessions and one-shots on too few slots, with everything that can go wrong."""

    world: Loopless
    draw: random.Random
    sessions: list[SessionActor] = attrs.field(factory=list[SessionActor])
    turns: list[tuple[SessionActor, TurnRequest]] = attrs.field(
        factory=list[tuple[SessionActor, TurnRequest]]
    )
    _names: int = 0

    def act(self) -> None:
        rare = (self.open, self.cancel, self.interrupt, self.late_interrupt, self.close)
        faults = (self.fail, self.hang, self.kill)
        self.draw.choice([*[self.step] * 8, *[self.submit] * 5, *rare, *faults])()
        self.turns = [each for each in self.turns if each[1].output.end is None]
        self.sessions = [
            each for each in self.sessions if each.session_id in self.world.core.sessions
        ]

    def open(self) -> None:
        if len(self.sessions) < 4:
            self._names += 1
            is_fork = self.sessions and self.draw.random() < 0.3
            parent = self.draw.choice(self.sessions) if is_fork else None
            self.sessions.append(self.world.session(f"s{self._names}", parent=parent))

    def submit(self) -> None:
        if not self.sessions or len(self.turns) > 5:
            self.open()
            return
        session = self.draw.choice(self.sessions)
        tokens = [self.draw.randrange(900) for _ in range(self.draw.choice([1, 3, 7, 12]))]
        params = SamplingParams(temperature=0, max_tokens=self.draw.choice([1, 3, 8]))
        self.world.advance(0.001)
        self.turns.append((session, self.world.start(session, tokens, params)))

    def step(self) -> None:
        self.world.advance(0.004)
        if self.world.device.waiting:
            self.world.step()

    def cancel(self) -> None:
        if self.turns:
            self.world.cancel(*self.draw.choice(self.turns))

    def interrupt(self) -> None:
        if self.turns:
            session, request = self.draw.choice(self.turns)
            keep = self.draw.randint(0, len(request.output.tokens))
            self.world.interrupt(session, keep, request)

    def late_interrupt(self) -> None:
        if self.sessions:
            self.world.interrupt(self.draw.choice(self.sessions), 0)

    def close(self) -> None:
        if self.sessions and self.draw.random() < 0.5:
            self.world.close(self.sessions.pop(self.draw.randrange(len(self.sessions))))

    def fail(self) -> None:
        if self.world.device.waiting:
            self.world.device.fail()
            self.world.run()

    def hang(self) -> None:
        if self.world.device.waiting and self.draw.random() < 0.4:
            self.world.advance(50)

    def kill(self) -> None:
        if self.sessions and self.draw.random() < 0.3:
            name = self.draw.choice(self.sessions).name
            self.world.core.dispatcher.kill(name, RuntimeError("planted"))
            self.world.run()

    def finish(self) -> None:
        """Let steps end, however late, and stop."""
        for _ in range(1000):
            if not self.world.device.waiting:
                break
            self.world.step()
        self.world.core.stop(join_timeout_s=0)


def engine_log(seed: int, moves: int = 160) -> list[str]:
    """The lines of an engine that was given a hard time; all of its leases land in the end."""
    file = io.StringIO()
    now = 0.0
    probe = EventProbe(event_logger(file), engine=f"engine-{seed}", clock=lambda: now)
    world = _Quiet.open(
        probe=probe,
        device=FakeDevice(mode="manual", eos_token_ids=()),
        num_slots=3,
        num_pages=14,
        max_num_seqs=2,
        max_num_batched_tokens=8,
        step_timeout_s=30,
        max_restarts=1000,
    )
    traffic = _EngineTraffic(world, random.Random(seed))
    for _ in range(moves):
        now = world.clock()
        try:
            traffic.act()
        except TenureError:
            continue  # refused at the door: no event, and no harm
    traffic.finish()
    return file.getvalue().splitlines()


@attrs.define(eq=False)
class _LedgerTraffic:
    """Every verb of every port, in any order that the ledger allows."""

    ledger: Ledger
    draw: random.Random
    fresh: Owns[list[BatchOwned]] = attrs.field(factory=list[BatchOwned])
    landed: Owns[list[BatchOwned]] = attrs.field(factory=list[BatchOwned])
    states: Owns[dict[int, SessionOwned]] = attrs.field(factory=dict[int, SessionOwned])
    cached: Owns[dict[int, CacheOwned]] = attrs.field(factory=dict[int, CacheOwned])
    steps: int = 0
    admitted: int = 0
    parks: int = 0
    batch: BatchPort = attrs.field(init=False)
    session: SessionPort = attrs.field(init=False)
    cache: CachePort = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.batch = self.ledger.batch_port(SCHEDULER)
        self.session = self.ledger.session_port(SESSION)
        self.cache = self.ledger.cache_port(CACHE)

    def act(self) -> None:
        often = (self.reserve, self.step)
        self.draw.choice([*often, *often, self.keep, self.end, self.park, self.read_out])()

    def reserve(self) -> None:
        if self.landed and self.draw.random() < 0.1:
            self._fork()
            return
        names = [BaseName(SESSION, version) for version in self.states]
        names += [BaseName(CACHE, version) for version in self.cached]
        base: Base = self.draw.choice(names) if names and self.draw.random() < 0.7 else ZEROS
        claim = self.batch.reserve(Need(self.draw.randint(1, 20)), base, turn=f"t{self.steps}")
        if not isinstance(claim, Refused):
            self.fresh.append(claim)

    def _fork(self) -> None:
        """A copy of a working claim, which is not launched before that has landed."""
        claim = self.batch.reserve(Need(0), self.landed[-1], turn="fork", place=Place.HOST)
        if not isinstance(claim, Refused):
            self._copy(claim)

    def park(self) -> None:
        """A state moves to the other place, or drops a page there."""
        if not self.states:
            return
        version = self.draw.choice(list(self.states))
        base = BaseName(SESSION, version)
        found = self.ledger.view.find_base(base)
        is_here = found is not None and found.place is Place.DEVICE
        place = Place.HOST if is_here else Place.DEVICE
        slides = found is not None and found.position >= 8 and self.draw.random() < 0.3
        claim = self.batch.reserve(Need(0, int(slides)), base, turn="park", place=place)
        if isinstance(claim, Refused) or not self._copy(claim):
            return
        self.parks += 1
        working = self.landed.pop()
        self.ledger.move(working, SCHEDULER, SESSION, "test")
        state = self.session.commit(working, replaces=self.states.pop(version))
        self.states[self.ledger.view.name_of(state).version] = state

    def _copy(self, claim: Consume[BatchOwned]) -> bool:
        """A step without tokens; what has landed well stands last."""
        self.steps += 1
        lease = self.batch.launch([claim], step=self.steps)
        if self.draw.random() < 0.1:
            for failed in self.batch.land(lease, StepFailed("planted")):
                self.batch.rollback(failed)
            return False
        self.landed.extend(self.batch.land(lease, Absorbed((0,))))
        return True

    def read_out(self) -> None:
        if not self.states:
            return
        version = self.draw.choice(list(self.states))
        base = BaseName(SESSION, version)
        claim = self.batch.reserve(Need(0), base, turn="read", place=Place.FILE)
        assert not isinstance(claim, Refused)
        self.steps += 1
        lease = self.batch.launch([claim], step=self.steps)
        if self.draw.random() < 0.3:
            self.session.close(self.states.pop(version))
        for read in self.batch.land(lease, Absorbed((0,))):
            self.batch.rollback(read)

    def step(self) -> None:
        rows = self._rows()
        if not rows:
            return
        self.steps += 1
        count = len(rows)
        lease = self.batch.launch(rows, step=self.steps)
        if self.states and self.draw.random() < 0.3:
            self._close()
        if self.cached and self.draw.random() < 0.3:
            self._evict()
        if self.draw.random() < 0.15:
            if self.draw.random() < 0.5:
                self.ledger.quarantine(lease)
            for claim in self.batch.land(lease, StepFailed("planted")):
                self.batch.rollback(claim)
        else:
            tokens = tuple(self.draw.randint(1, 5) for _ in range(count))
            self.landed.extend(self.batch.land(lease, Absorbed(tokens)))

    def _rows(self) -> list[BatchOwned]:
        """Take up to three claims that can grow."""
        rows: list[BatchOwned] = []
        for claims in (self.fresh, self.landed):
            stay: list[BatchOwned] = []
            while claims:
                claim = claims.pop(0)
                if len(rows) < 3 and self._grows(claim):
                    rows.append(claim)
                else:
                    stay.append(claim)
            claims.extend(stay)
        return rows

    def _grows(self, claim: BatchOwned) -> bool:
        need = Need(self.ledger.view.position(claim) + 5)
        return not isinstance(self.batch.grow(claim, need), Refused)

    def keep(self) -> None:
        if not self.landed:
            return
        working = self.landed.pop(self.draw.randrange(len(self.landed)))
        if self.draw.random() < 0.5:
            self.ledger.move(working, SCHEDULER, SESSION, "test")
            state = self.session.commit(working, replaces=None)
            self.states[self.session.version] = state
        else:
            self.ledger.move(working, SCHEDULER, CACHE, "test")
            self.admitted += 1
            self.cached[self.admitted] = self.cache.admit(working)

    def end(self) -> None:
        if self.states and self.draw.random() < 0.4:
            self._close()
        elif self.cached and self.draw.random() < 0.4:
            self._evict()
        elif self.fresh and self.draw.random() < 0.5:
            self.batch.rollback(self.fresh.pop())
        elif self.draw.random() < 0.1:
            self.ledger.reclaim(SCHEDULER)
            while self.fresh or self.landed:
                reclaimed: object = (self.fresh or self.landed).pop()
                del reclaimed

    def _close(self) -> None:
        self.session.close(self.states.pop(self.draw.choice(list(self.states))))

    def _evict(self) -> None:
        self.cache.evict(self.cached.pop(self.draw.choice(list(self.cached))))

    def finish(self) -> None:
        while self.fresh or self.landed:
            self.batch.rollback((self.fresh or self.landed).pop())
        while self.states:
            self._close()
        while self.cached:
            self._evict()
        self.ledger.audit()


def ledger_log(seed: int, verbs: int = 120) -> list[str]:
    """The lines of a bare ledger that a scheduler, a session and a prefix cache use."""
    file = io.StringIO()
    ticks = iter(range(1, 1_000_000))
    probe = EventProbe(
        event_logger(file), engine=f"ledger-{seed}", clock=lambda: next(ticks) / 1000
    )
    ledger = Ledger(Capacity(6, 40, 4), host=Capacity(3, 24, 4), observer=probe)
    traffic = _LedgerTraffic(ledger, random.Random(seed))
    for _ in range(verbs):
        traffic.act()
    traffic.finish()
    return file.getvalue().splitlines()


def long_log(events: int) -> list[str]:
    """A ledger's log of about so many events."""
    return ledger_log(1, verbs=events * 2 // 3)[:events]
