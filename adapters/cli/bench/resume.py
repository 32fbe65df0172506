"""How soon a turn has its first token, by where its session's state is, against computing it anew.

One session for each history, on an engine of two slots. Its state is brought to a tier as it gets
there in life: two one-shot requests that need both slots send it to host memory, another session
beyond ``max_resident_sessions`` to the disk, and the log alone is left when the snapshot is
dropped from the store. Each run takes the first token of a turn and leaves, which rolls the turn
back and leaves the state where it was.
"""

import math
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import anyio
import attrs

from adapters.cli.bench.clock import until
from adapters.cli.bench.counting import CountingDevice
from adapters.cli.bench.first_token import first_token_s
from adapters.cli.bench.resume_models import MODELS, open_model
from kernel import Engine, EngineConfig, SamplingParams, Session
from kernel.engine.opening import file_header, find_session_files
from kernel.session_store import DropState, Kept, StoreReport

__all__ = ["TIERS", "resume_ms"]

TIERS: Final = ("device", "host", "disk", "log")
_PAGE: Final = 16
_SLACK: Final = 1024
"""Tokens of room beside the history: the turns that are measured, the requests that push."""
_PATIENCE_S: Final = 60.0
_SHORT: Final = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True, detokenize=False)

Prepare = Callable[[], Awaitable[object]]
Measure = Callable[[], Awaitable[float]]


@attrs.define(eq=False)
class _Times:
    """Seconds of each run by tier, and the tokens that each computed before its first token."""

    device: CountingDevice
    runs: int
    budget_s: float
    seconds: dict[str, list[float]] = attrs.field(factory=dict[str, list[float]])
    tokens: dict[str, set[int]] = attrs.field(factory=dict[str, set[int]])

    async def take(self, tier: str, prepare: Prepare, measure: Measure) -> None:
        """Measure so many times, or as often as the time allows, and once at least."""
        spent = 0.0
        for _ in range(self.runs):
            await prepare()
            self.device.begin()
            seconds = await measure()
            self.seconds.setdefault(tier, []).append(seconds)
            self.tokens.setdefault(tier, set()).add(self.device.tokens_to_draw or 0)
            spent += seconds
            if spent > self.budget_s:
                break

    def ms(self, tier: str) -> float:
        """The median."""
        return round(median(self.seconds[tier]) * 1e3, 3)


def resume_ms(
    histories: tuple[int, ...],
    *,
    model: str = "hybrid",
    runs: int = 15,
    budget_s: float = 10.0,
    directory: Path | None = None,
    tell: Callable[[str], object] = lambda _what: None,
) -> dict[str, Any]:
    """Milliseconds to a turn's first token by tier and history, and those of computing it anew.

    Args:
        histories: tokens of the sessions' logs.
        model: a name of :data:`resume_models.MODELS`.
        runs: of each; the median is told.
        budget_s: seconds after which no further run of a tier is begun.
        directory: on the disk to measure; the system's for temporary files by default.
        tell: told what is being done.
    """
    found: dict[int, _Found] = {}
    for history in histories:
        tell(f"a session of {history} tokens, {model} model ...")
        found[history] = anyio.run(_measure, model, history, runs, budget_s, directory)
    return {
        "resume_model": MODELS[model].name,
        "resume_state_bytes": {str(history): one.state_bytes for history, one in found.items()},
        "resume_ms": {
            tier: {str(history): one.times.ms(tier) for history, one in found.items()}
            for tier in TIERS
        },
        "reprefill_ms": {str(history): one.times.ms(_ANEW) for history, one in found.items()},
        "resume_tokens": {
            tier: {str(history): sorted(one.times.tokens[tier]) for history, one in found.items()}
            for tier in (*TIERS, _ANEW)
        },
        "resume_runs": {
            tier: {str(history): len(one.times.seconds[tier]) for history, one in found.items()}
            for tier in (*TIERS, _ANEW)
        },
    }


_ANEW: Final = "reprefill"


@attrs.frozen(eq=False)
class _Found:
    times: _Times
    state_bytes: int


async def _measure(
    model: str, history: int, runs: int, budget_s: float, directory: Path | None
) -> _Found:
    device = CountingDevice(open_model(model))
    times = _Times(device, runs, budget_s)
    with tempfile.TemporaryDirectory(prefix="tenure-bench-", dir=directory) as store:
        config = _config(device, history, store)
        async with Engine.open(config, device=device) as engine:
            state_bytes = await _in_one_life(engine, history, times)
        await _over_lives(config, device, times)
    device.close()
    return _Found(times, state_bytes)


def _config(device: CountingDevice, history: int, store: str) -> EngineConfig:
    """Two slots, pages for one session of the history and a little more, as much in host memory."""
    spec = device.model
    pages = math.ceil((history + _SLACK) / _PAGE) if spec.uses_pages else 0
    return EngineConfig(
        max_num_seqs=2,
        num_slots=2 if spec.uses_slots else None,
        num_pages=pages or None,
        page_size=_PAGE,
        max_num_batched_tokens=2048,
        host_memory_bytes=2 * (spec.slot_bytes + pages * _PAGE * spec.page_token_bytes),
        session_store=store,
        max_resident_sessions=1,
        step_timeout_s=600.0,
        log_events=False,
    )


async def _in_one_life(engine: Engine, history: int, times: _Times) -> int:
    """All but the log; returns the bytes of the state."""
    prompt = [1 + index % 1000 for index in range(history)]

    async def forgotten() -> None:
        await engine.complete([1, 2, 3], _SHORT)
        if "a" in engine.session_ids():
            await engine.forget("a")

    async def anew() -> float:
        async with engine.session(session_id="a", detached=True) as session:
            return await _first_turn(session, prompt)

    await times.take(_ANEW, forgotten, anew)
    session = engine.attach("a")

    async def rests(place: str) -> None:
        await engine.settle()
        if session.info.place != place:
            raise RuntimeError(f"the state is on {session.info.place}, not on {place}")

    async def goes_on() -> float:
        return await first_token_s(engine.attach("a"))

    await goes_on()  # warms up
    await times.take("device", partial(rests, "device"), goes_on)
    nbytes = session.info.bytes
    await _push_to_host(engine)
    await times.take("host", partial(rests, "host"), goes_on)
    await times.take("disk", partial(_leave_to_disk, engine), goes_on)
    return nbytes


async def _over_lives(config: EngineConfig, device: CountingDevice, times: _Times) -> None:
    """The log, whose every turn leaves a state: each run is in an engine that is opened anew."""

    async def drop() -> None:
        await anyio.to_thread.run_sync(_drop_snapshot, config, device)

    async def goes_on() -> float:
        async with Engine.open(config, device=device) as engine:
            return await first_token_s(engine.attach("a"))

    await times.take("log", drop, goes_on)


async def _first_turn(session: Session, prompt: list[int]) -> float:
    """Seconds to the first token of a turn that runs to its end."""
    started = anyio.current_time()
    spent = 0.0
    async with session.turn(prompt, _SHORT) as turn:
        async for delta in turn:
            if delta.token_ids and not spent:
                spent = anyio.current_time() - started
    return spent


async def _push_to_host(engine: Engine) -> None:
    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(engine.complete, [1, 2, 3], _SHORT)


async def _leave_to_disk(engine: Engine) -> None:
    """Another session comes, so that the one that rests goes."""
    async with (
        engine.session(session_id="b", resume=True, detached=True) as other,
        other.turn([1, 2, 3], _SHORT) as turn,
    ):
        await turn.wait()
    await until(lambda: engine.attach("a").info.state == "dormant")
    await engine.settle()


def _drop_snapshot(config: EngineConfig, device: CountingDevice) -> None:
    directory, header = Path(config.session_store or ""), file_header(device.model)
    store = find_session_files().open_store(directory, header, sync="normal", max_state_bytes=None)
    reports = list[StoreReport]()
    store.submit(DropState("a"), reports.append)
    store.stop()
    if not store.join(_PATIENCE_S) or reports != [Kept()]:
        raise RuntimeError(f"the snapshot is not dropped: {reports}")
