"""What a session at rest costs: time to open ten thousand of them, and bytes of each."""

import gc
import tracemalloc

import anyio

from kernel import Engine, EngineConfig

__all__ = ["idle_sessions"]


def idle_sessions(count: int = 10_000) -> dict[str, float]:
    """Open so many sessions twice: once for the time, once, traced, for the memory."""
    open_s, _ = anyio.run(_open, count)
    tracemalloc.start()
    try:
        _, bytes_each = anyio.run(_open, count)
    finally:
        tracemalloc.stop()
    return {"count": count, "bytes_each": round(bytes_each), "open_s": round(open_s, 3)}


async def _open(count: int) -> tuple[float, float]:
    config = EngineConfig(model="fake", device="fake", max_sessions=count, log_events=False)
    async with Engine.open(config) as engine:
        gc.collect()
        before = tracemalloc.get_traced_memory()[0] if tracemalloc.is_tracing() else 0
        started = anyio.current_time()
        for _ in range(count):
            async with engine.session(detached=True):
                pass
        open_s = anyio.current_time() - started
        gc.collect()
        after = tracemalloc.get_traced_memory()[0] if tracemalloc.is_tracing() else 0
        return open_s, (after - before) / count
