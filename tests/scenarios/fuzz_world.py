"""Random operations on one engine, each followed by the partition oracle and a reference model.

The model is sequential and small: a session's history is what its ended turns said, in the order
in which they were submitted. It knows nothing of slots, pages, chunks, preemption or parking.
"""

import random
from collections import Counter
from typing import Any

import anyio
import attrs

from kernel import (
    PromptTooLong,
    SessionBusy,
    TenureError,
    ValidationError,
)
from kernel.ids import SessionId
from tests.scenarios.fuzz_model import Client, Open
from tests.scenarios.stage import Stage, greedy

__all__ = ["FuzzWorld"]

VOCAB = 900
SESSIONS = 5
ONE_SHOTS = 4


@attrs.define(eq=False)
class FuzzWorld:
    """One engine and its random clients, all in one task."""

    stage: Stage
    rng: random.Random
    clients: list[Client] = attrs.field(factory=list[Client])
    one_shots: list[Open] = attrs.field(factory=list[Open])
    tape: list[str] = attrs.field(factory=list[str])
    seen: Counter[str] = attrs.field(factory=Counter[str])

    async def act(self) -> None:
        """One random operation, then the oracles."""
        operations = [
            *[self._step] * 8,
            *[self._submit] * 5,
            *[self._read] * 2,
            self._fail,
            self._one_shot,
            self._open_session,
            self._fork,
            self._leave,
            self._abort,
            self._interrupt,
            self._interrupt_late,
            self._overlap,
            self._too_long,
            self._close,
            self._advance,
        ]
        operation = self.rng.choice(operations)
        self.tape.append(operation.__name__.strip("_"))
        await operation()
        await self.stage.settle()
        await self._compare()

    async def finish(self) -> None:
        """Let everything end, and close."""
        while self.stage.device.waiting:
            await self.stage.step()
            await self._compare()
        for client in self.clients:
            assert not client.turns, "a turn is open and nothing runs"
            await client.session.close()
        assert not self.one_shots
        await self.stage.settle()
        self.stage.assert_at_rest()

    # Operations

    async def _step(self) -> None:
        if self.stage.device.waiting:
            await self.stage.step()

    async def _fail(self) -> None:
        if self.stage.device.waiting:
            await self.stage.fail_step()

    async def _open_session(self) -> None:
        if len(self.clients) < SESSIONS:
            session = self.stage.engine.session(detached=True)
            async with session:
                self.clients.append(Client(session))

    async def _fork(self) -> None:
        if self.clients and len(self.clients) < SESSIONS:
            parent = self.rng.choice(self.clients)
            child = parent.session.fork(detached=True)
            async with child:
                self.clients.append(Client(child, list(parent.history)))
            self.seen["forks"] += 1

    def _options(self) -> dict[str, Any]:
        rng = self.rng
        return {
            "priority": rng.choice([-2, 0, 3]),
            "tenant": rng.choice("ab"),
            "timeout_s": rng.choice([None, None, 20, 60]),
            "queue_timeout_s": rng.choice([None, None, 10]),
        }

    def _tokens(self) -> list[int]:
        return [self.rng.randrange(VOCAB) for _ in range(self.rng.choice([1, 2, 5, 9]))]

    async def _enter(self, open_turn: Open) -> bool:
        try:
            await open_turn.turn.__aenter__()
        except TenureError as error:
            self.seen[type(error).__name__] += 1
            return False
        self.seen["submitted"] += 1
        return True

    async def _submit(self) -> None:
        if not self.clients:
            return
        client = self.rng.choice(self.clients)
        params = greedy(self.rng.choice([1, 3, 8]))
        on_exit: Any = self.rng.choice(["rollback", "keep"])
        turn = client.session.turn(
            self._tokens(), params, wait=True, on_exit=on_exit, **self._options()
        )
        open_turn = Open(turn, client.id)
        if await self._enter(open_turn):
            client.turns.append(open_turn)

    async def _one_shot(self) -> None:
        if len(self.one_shots) < ONE_SHOTS:
            params = greedy(self.rng.choice([1, 3, 8]))
            turn = self.stage.engine.stream(self._tokens(), params, **self._options())
            open_turn = Open(turn, SessionId(f"one-shot:{turn.request_id}"))
            if await self._enter(open_turn):
                self.one_shots.append(open_turn)

    def _any_turn(self) -> Open | None:
        turns = [turn for client in self.clients for turn in client.turns] + self.one_shots
        return self.rng.choice(turns) if turns else None

    async def _read(self) -> None:
        if open_turn := self._any_turn():
            await self._read_from(open_turn)

    async def _read_from(self, open_turn: Open) -> None:
        with anyio.move_on_after(0):
            delta = await anext(open_turn.turn)
            open_turn.received += delta.token_ids
            open_turn.ends += delta.finish_reason is not None

    async def _leave(self) -> None:
        if open_turn := self._any_turn():
            await open_turn.turn.__aexit__(None, None, None)

    async def _abort(self) -> None:
        if open_turn := self._any_turn():
            assert self.stage.engine.abort(open_turn.turn.request_id)

    async def _interrupt(self) -> None:
        """Accepted at once; the answer comes when it lands, to whoever still listens."""
        if open_turn := self._any_turn():
            keep = self.rng.choice([None, self.rng.randint(0, len(open_turn.received))])
            with anyio.move_on_after(0):
                await open_turn.turn.interrupt(keep)

    async def _interrupt_late(self) -> None:
        resting = [client for client in self.clients if client.last and not client.turns]
        if not resting:
            return
        client = self.rng.choice(resting)
        assert client.last is not None
        start, count = client.last
        keep = self.rng.randint(0, count)
        assert await client.session.interrupt(keep) == keep
        del client.history[start + keep :]
        client.last = (start, keep)
        self.seen["late interrupts"] += 1

    async def _overlap(self) -> None:
        busy = [client for client in self.clients if client.turns]
        if busy:
            client = self.rng.choice(busy)
            open_turn = Open(client.session.turn(self._tokens(), greedy(1)), client.id)
            try:
                await open_turn.turn.__aenter__()
            except (SessionBusy, TenureError) as error:
                self.seen[type(error).__name__] += 1
            else:
                # The active turn is interrupted and has not landed: this one waits for it.
                client.turns.append(open_turn)

    async def _too_long(self) -> None:
        if self.clients:
            turn = self.rng.choice(self.clients).session.turn([1] * 200, greedy(1), wait=True)
            with anyio.move_on_after(0):
                try:
                    await turn.__aenter__()
                except (PromptTooLong, ValidationError, TenureError) as error:
                    self.seen[type(error).__name__] += 1
                    return
            turn.cancel()

    async def _close(self) -> None:
        if self.clients and self.rng.random() < 0.5:
            client = self.clients.pop(self.rng.randrange(len(self.clients)))
            await client.session.close()
            await self.stage.settle()
            for open_turn in client.turns:
                await self._has_failed(open_turn)

    async def _advance(self) -> None:
        await self.stage.advance(self.rng.choice([1, 7]))

    # Oracles

    def _is_open(self, open_turn: Open) -> bool:
        actor = self.stage.engine.core.sessions.get(open_turn.session_id)
        if actor is None:
            return False
        name = open_turn.turn.request_id
        is_active = actor.active is not None and actor.active.id == name
        return is_active or any(request.id == name for request in actor.waiting)

    async def _compare(self) -> None:
        """Judge what has ended; every session's log is the model's."""
        for client in self.clients:
            # A turn that was cancelled amid those that wait ends before its seniors.
            ended = [turn for turn in client.turns if not self._is_open(turn)]
            for open_turn in ended:
                client.turns.remove(open_turn)
                await self._ended(open_turn, client)
            actor = self.stage.engine.core.sessions[client.id]
            assert len(actor.state.log) == len(client.history)
            assert not ended or list(actor.state.log) == client.history
            assert actor.state.position <= max(0, len(client.history) - 1)
        for open_turn in [turn for turn in self.one_shots if not self._is_open(turn)]:
            self.one_shots.remove(open_turn)
            await self._ended(open_turn, None)

    async def _ended(self, open_turn: Open, client: Client | None) -> None:
        turn = open_turn.turn
        if not turn.has_result:
            await self._has_failed(open_turn)
            if client is not None:
                # It may have begun, and the turn before it is out of reach then.
                client.last = None
            return
        result = turn.result
        self.seen[f"ended: {result.finish_reason}"] += 1
        while not open_turn.ends:
            await self._read_from(open_turn)
        assert tuple(open_turn.received[: len(result.token_ids)]) == result.token_ids
        if result.finish_reason != "interrupt":
            assert len(open_turn.received) == len(result.token_ids)
        history = self.stage.note([] if client is None else client.history, result)
        if client is not None:
            client.last = (len(history) - len(result.token_ids), len(result.token_ids))
            client.history = history

    async def _has_failed(self, open_turn: Open) -> None:
        """It ended without a result: its reader gets one error, and then nothing."""
        if open_turn.turn.has_result:
            return
        try:
            await anext(open_turn.turn)
        except TenureError as error:
            self.seen[type(error).__name__] += 1
        try:
            await anext(open_turn.turn)
        except StopAsyncIteration:
            return
        raise AssertionError("the error is not the last that a reader gets")
