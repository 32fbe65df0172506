"""What a session at rest costs: time to open ten thousand of them, and bytes of each."""

import gc
import tempfile
import tracemalloc

import anyio

from kernel import Engine, EngineConfig, SamplingParams

__all__ = ["idle_sessions"]

_TURNS = 3
_PROMPT = (1, 2, 3, 4)
_PARAMS = SamplingParams(max_tokens=4, ignore_eos=True)


def idle_sessions(count: int = 10_000, used: int = 400) -> dict[str, float]:
    """Open so many sessions twice: once for the time, once, traced, for the memory.

    So many are weighed after three turns as well, and again where a store keeps them.
    """
    open_s, _ = anyio.run(_open, count)
    tracemalloc.start()
    try:
        _, bytes_each = anyio.run(_open, count)
        after_turns = anyio.run(_use, used, None)
        with tempfile.TemporaryDirectory() as store:
            with_store = anyio.run(_use, used, store)
    finally:
        tracemalloc.stop()
    return {
        "count": count,
        "bytes_each": round(bytes_each),
        "bytes_after_turns": round(after_turns),
        "bytes_with_store": round(with_store),
        "open_s": round(open_s, 3),
    }


async def _open(count: int) -> tuple[float, float]:
    config = EngineConfig(model="fake", device="fake", max_sessions=count, log_events=False)
    async with Engine.open(config) as engine:
        before = _traced_bytes()
        started = anyio.current_time()
        for _ in range(count):
            async with engine.session(detached=True):
                pass
        open_s = anyio.current_time() - started
        return open_s, (_traced_bytes() - before) / count


async def _use(count: int, store: str | None) -> float:
    """Bytes of a session in memory whose turns are over and whose state has left the pool."""
    config = EngineConfig(
        model="fake",
        device="fake",
        log_events=False,
        max_sessions=2 * count + 1,
        max_resident_sessions=2 * count,
        num_slots=2,
        session_store=store,
    )
    async with Engine.open(config) as engine:
        await _turns(engine, count)  # what fills the pool is bounded by it
        before = _traced_bytes()
        await _turns(engine, count)
        return (_traced_bytes() - before) / count


async def _turns(engine: Engine, count: int) -> None:
    for _ in range(count):
        async with engine.session(detached=True) as session:
            for _ in range(_TURNS):
                async with session.turn(_PROMPT, _PARAMS) as turn:
                    await turn.wait()


def _traced_bytes() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
