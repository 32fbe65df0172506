"""What the whole kernel costs a decode step, on a device that computes next to nothing."""

from statistics import median

import anyio

from kernel import Engine, EngineConfig, SamplingParams

__all__ = ["step_ms"]

ROWS = (1, 32, 256)
STEPS = {1: 1000, 32: 400, 256: 150}


def step_ms(*, repeats: int = 5, rows: tuple[int, ...] = ROWS) -> dict[str, float]:
    """Milliseconds of a step by rows: plan, launch, land, judge, deliver; median of repeats."""
    return {str(count): round(anyio.run(_measure, count, repeats), 4) for count in rows}


async def _measure(rows: int, repeats: int) -> float:
    tokens = STEPS.get(rows, 100)
    config = EngineConfig(
        model="fake",
        device="fake",
        max_num_seqs=rows,
        max_num_batched_tokens=max(512, rows),
        log_events=False,
    )
    params = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True, detokenize=False)
    async with Engine.open(config) as engine:
        await _serve(engine, rows, params)
        return median([await _serve(engine, rows, params) for _ in range(repeats)]) * 1e3


async def _serve(engine: Engine, rows: int, params: SamplingParams) -> float:
    """Run so many requests at once; returns seconds per step."""
    steps = engine.stats().steps
    started = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        for row in range(rows):
            tasks.start_soon(engine.complete, [1 + row, 2, 3], params)
    spent = anyio.current_time() - started
    return spent / (engine.stats().steps - steps)
