"""A client of the simulated engine: it opens a session and does what its plan says."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Literal, Protocol

import anyio

from kernel.chat import Prompt
from kernel.engine.engine import Engine
from kernel.engine.request import RunningTurn
from kernel.engine.streaming_session import Session
from kernel.testing.simulation.plan import ClientPlan, Kind, Operation
from kernel.testing.simulation.scores import wrong_delta, wrong_result
from kernel.testing.simulation.speech import said
from kernel.testing.simulation.timeline import Job

__all__ = ["Client"]

_ROOM_FOR_A_TURN = 25
_LONGEST_SLIDING = 150
"""As long as sessions become that have no limit."""


class _World(Protocol):
    @property
    def seen(self) -> dict[str, int]: ...

    def start(self, name: str, work: Callable[[], Awaitable[object]]) -> Job: ...

    def fail(self, kind: str, message: str) -> None: ...

    def saw_error(self, error: BaseException) -> None: ...


class Client:
    """One client; each of its operations is a task of its own, and may be killed at any step."""

    def __init__(
        self,
        world: _World,
        engine: Engine,
        plan: ClientPlan,
        calm: anyio.Event,
        crowd: "list[Client]",
    ) -> None:
        self.name = f"client-{len(crowd)}"
        self.session: Session | None = None
        self._world = world
        self._engine = engine
        self._plan = plan
        self._calm = calm
        self._crowd = crowd
        self.jobs: list[Job] = []
        self._work: dict[Kind, Callable[[Operation], Awaitable[object]]] = {
            "nothing": self._nothing,
            "turn": self._turn,
            "wait for a turn": self._wait_for_a_turn,
            "leave a turn": self._leave_a_turn,
            "interrupt a turn": self._interrupt_a_turn,
            "append": self._append,
            "cut the last turn": self._cut_the_last_turn,
            "complete": self._complete,
            "abandon a generation": self._abandon_a_generation,
            "map": self._map,
            "stop reading": self._stop_reading,
            "overlap": self._overlap,
            "fork": self._fork,
            "fork a running session": self._fork_running,
            "mark": self._mark,
            "go back to a mark": self._go_back,
            "rewind": self._rewind,
            "visit another session": self._visit,
            "time out": self._time_out,
            "abort": self._abort,
            "close": self._close,
            "look": self._look,
            "settle": self._settle,
        }

    async def run(self) -> None:
        """All operations, one after the other, whatever becomes of each."""
        for operation in self._plan.operations:
            if operation.pause_s:
                await anyio.sleep(operation.pause_s)
            work = partial(self._work[operation.kind], operation)
            job = self._world.start(f"{self.name}: {operation.kind}", work)
            self.jobs.append(job)
            await job.wait()

    # Sessions

    async def _here(self) -> Session:
        """The client's session; another one when it is closed, lost, or nearly full."""
        session = self.session
        if session is not None and not self._serves(session):
            self.session = None
            await session.close()
            session = None
        if session is None:
            slides = self._plan.slides and not self._engine.core.why_no_slides
            session = self._engine.session(
                idle_timeout_s=self._plan.idle_timeout_s,
                on_limit="slide" if slides else "refuse",
            )
            await session.__aenter__()
            self.session = session
        return session

    def _serves(self, session: Session) -> bool:
        info = session.info
        slides = self._plan.slides and not self._engine.core.why_no_slides
        longest = _LONGEST_SLIDING if slides else self._engine.core.session_limits.max_len
        room = longest - (info.num_tokens or 0)  # unknown: the kernel says what is too long
        return info.state != "closed" and room >= _ROOM_FOR_A_TURN

    def _new_turn(self, session: Session, operation: Operation, *, wait: bool) -> RunningTurn:
        on_exit: Literal["rollback", "keep"] = "keep" if operation.count % 2 else "rollback"
        prompt = self._prompt_of(operation)
        return session.turn(
            prompt, operation.params, wait=wait, on_exit=on_exit, **operation.options
        )

    def _prompt_of(self, operation: Operation) -> Prompt:
        """What a session is told: token ids, or a message with them."""
        tokens = _prompt(operation)
        return said(tokens) if self._plan.speaks else tokens

    async def _read(
        self, turn: RunningTurn, deltas: int = 1_000_000, before: Sequence[int] = ()
    ) -> list[int]:
        """So many deltas; with those ``before``, they must be what the turn comes to."""
        received = list(before)
        async for delta in turn:
            received += delta.token_ids
            if wrong := wrong_delta(delta):
                self._world.fail("scores", f"a delta of {turn.request_id}: {wrong}")
            deltas -= 1
            if not deltas:
                self._judge(turn, received, is_all=False)
                break
        else:
            self._judge(turn, received, is_all=True)
        return received

    def _judge(self, turn: RunningTurn, received: list[int], *, is_all: bool) -> None:
        if not turn.has_result:
            return
        result = turn.result
        kept, reason = list(result.token_ids), result.finish_reason
        self._world.seen[f"ended: {reason}"] += 1
        if wrong := wrong_result(result):
            self._world.fail("scores", f"{turn.request_id}: {wrong}")
        common = min(len(kept), len(received))
        # An interrupt may keep less than was received; nothing else does, once all is read.
        is_short = is_all and reason != "interrupt" and len(kept) != len(received)
        if is_short or kept[:common] != received[:common]:
            self._world.fail("deltas", f"{turn.request_id} gave {received} and came to {kept}")

    # Operations

    async def _nothing(self, operation: Operation) -> None:
        del operation
        await anyio.lowlevel.checkpoint()

    async def _turn(self, operation: Operation) -> None:
        async with self._new_turn(await self._here(), operation, wait=operation.waits) as turn:
            await self._read(turn)

    async def _wait_for_a_turn(self, operation: Operation) -> None:
        async with self._new_turn(await self._here(), operation, wait=operation.waits) as turn:
            self._judge(turn, list((await turn.wait()).token_ids), is_all=True)

    async def _leave_a_turn(self, operation: Operation) -> None:
        async with self._new_turn(await self._here(), operation, wait=operation.waits) as turn:
            if operation.count > 1:
                await self._read(turn, operation.count - 1)
            elif operation.timeout_s:
                await anyio.sleep(operation.timeout_s)

    async def _interrupt_a_turn(self, operation: Operation) -> None:
        async with self._new_turn(await self._here(), operation, wait=operation.waits) as turn:
            received = await self._read(turn, operation.count) if operation.count else []
            keep = min(len(received), operation.salt % 4) if operation.salt % 3 else None
            kept = await turn.interrupt(keep)
            result = await turn.wait()
            self._world.seen[f"ended: {result.finish_reason}"] += 1
            at_most = kept if keep is None else min(kept, keep)
            was_in_time = result.finish_reason == "interrupt"
            if kept > at_most or (was_in_time and len(result.token_ids) != kept):
                what = f"{turn.request_id} kept {kept} of {keep}: {result.token_ids}"
                self._world.fail("interrupt", what)

    async def _append(self, operation: Operation) -> None:
        session = await self._here()
        timeout_s = operation.options.get("timeout_s")
        prompt = self._prompt_of(operation)
        await session.append(prompt, wait=operation.waits, timeout_s=timeout_s)

    async def _cut_the_last_turn(self, operation: Operation) -> None:
        session = await self._here()
        async with self._new_turn(session, operation, wait=operation.waits) as turn:
            received = await self._read(turn)
        keep = min(operation.count, len(received))
        if await session.interrupt(keep) == keep:
            self._world.seen["late interrupt"] += 1

    async def _complete(self, operation: Operation) -> None:
        await self._engine.complete(_prompt(operation), operation.params, **operation.options)

    async def _abandon_a_generation(self, operation: Operation) -> None:
        generation = self._engine.generate(
            _prompt(operation), operation.params, **operation.options
        )
        async for _ in generation:
            if not operation.count:
                break
        if operation.waits:
            await generation.aclose()

    async def _map(self, operation: Operation) -> None:
        prompts = [_prompt(operation, more) for more in range(3)]
        results = await self._engine.map(prompts, operation.params, concurrency=2)
        if len(results) != len(prompts):
            self._world.fail("map", f"{len(results)} results for {len(prompts)} prompts")

    async def _stop_reading(self, operation: Operation) -> None:
        async with self._new_turn(await self._here(), operation, wait=operation.waits) as turn:
            received = await self._read(turn, 1) if operation.count else []
            await self._calm.wait()
            await self._read(turn, before=received)

    async def _overlap(self, operation: Operation) -> None:
        """Two turns of one session at once; the second waits, or is refused."""
        session = await self._here()
        async with self._new_turn(session, operation, wait=True) as first:
            second = partial(self._one_more, session, operation)
            job = self._world.start(f"{self.name}: overlapping", second)
            self.jobs.append(job)
            await self._read(first, max(1, operation.count))
            if operation.waits:
                await first.interrupt()
            await job.wait()

    async def _one_more(self, session: Session, operation: Operation) -> None:
        async with self._new_turn(session, operation, wait=operation.waits) as turn:
            await self._read(turn)

    async def _fork(self, operation: Operation) -> None:
        """A turn of its own in a session that began as this one, beside a turn of the parent."""
        session = await self._here()
        if operation.salt % 2:
            await session.append(self._prompt_of(operation), wait=True)
        async with session.fork() as child:
            self._world.seen["fork"] += 1
            if operation.waits and self._serves(child):
                beside = partial(self._one_more, session, operation)
                job = self._world.start(f"{self.name}: parent of a fork", beside)
                self.jobs.append(job)
            async with self._new_turn(child, operation, wait=False) as turn:
                await self._read(turn, operation.count or 100)

    async def _fork_running(self, operation: Operation) -> None:
        """The fork has none of the turn that runs, and that goes on."""
        session = await self._here()
        async with self._new_turn(session, operation, wait=True) as turn:
            received = await self._read(turn, 1) if operation.count else []
            async with session.fork() as child:
                self._world.seen["fork of a running session"] += not turn.has_result
                if self._serves(child):
                    await self._one_more(child, operation)
            await self._read(turn, before=received)

    async def _mark(self, operation: Operation) -> None:
        """A mark, moved or new, and at times one less."""
        session = await self._here()
        await session.checkpoint(_mark_of(operation))
        if operation.count == 1:
            await session.drop_checkpoint(_mark_of(operation))

    async def _go_back(self, operation: Operation) -> None:
        """Back to a mark, from before or from now; then on from there, as a rule."""
        session = await self._here()
        mark = _mark_of(operation)
        if operation.count:
            await session.checkpoint(mark)
            await self._one_more(session, operation)
        await session.restore(mark)
        self._world.seen["back to a mark"] += 1
        if operation.waits:
            await self._one_more(session, operation)

    async def _rewind(self, operation: Operation) -> None:
        """Undo turns, at times after the last one was cut, and go on."""
        session = await self._here()
        if operation.count:
            await self._one_more(session, operation)
        if operation.salt % 3 == 0:
            await session.interrupt(0)
        left = session.info.turns or 0
        to = -1 - operation.count % 2 if operation.salt % 2 else left - left // 2
        self._world.seen["rewind"] += left - await session.rewind(to) > 0
        if operation.waits:
            await self._one_more(session, operation)

    async def _visit(self, operation: Operation) -> None:
        host = self._crowd[operation.salt % len(self._crowd)].session
        if host is None:
            return
        session = self._engine.attach(host.session_id)
        async with session, self._new_turn(session, operation, wait=True) as turn:
            await self._read(turn)

    async def _time_out(self, operation: Operation) -> None:
        session = await self._here()
        with anyio.move_on_after(operation.timeout_s) as scope:
            async with self._new_turn(session, operation, wait=True) as turn:
                await turn.wait()
        self._world.seen["left by a timeout"] += scope.cancelled_caught

    async def _abort(self, operation: Operation) -> None:
        async with self._new_turn(await self._here(), operation, wait=True) as turn:
            if operation.timeout_s:
                await anyio.sleep(operation.timeout_s)
            self._engine.abort(turn.request_id)
            await turn.wait()

    async def _close(self, operation: Operation) -> None:
        """Close while a turn may run."""
        session = await self._here()
        if operation.waits:
            job = self._world.start(
                f"{self.name}: closed upon", partial(self._one_more, session, operation)
            )
            self.jobs.append(job)
            await anyio.sleep(operation.timeout_s)
        self.session = None
        await session.close()

    async def _look(self, operation: Operation) -> None:
        del operation
        self._engine.stats()
        self._engine.health()
        self._engine.list_sessions()
        if not self._engine.audit().conserved:
            self._world.fail("conservation", f"{self._engine.audit().problems}")

    async def _settle(self, operation: Operation) -> None:
        with anyio.move_on_after(operation.timeout_s):
            await self._engine.settle()


def _mark_of(operation: Operation) -> str:
    return "red" if operation.salt % 3 else "blue"


def _prompt(operation: Operation, more: int = 0) -> list[int]:
    """Of few beginnings, so that prompts share them."""
    first = 7 * (operation.salt % 6 + more)
    return [(first + 3 * n) % 200 + 1 for n in range(operation.prompt)]
