"""The oracle: every finished turn equals a cold, solo, greedy run of the same history."""

import pytest

from tests.oracle.runs import judge_fake_worlds, judge_torch_worlds


@pytest.mark.timeout(60)
async def test_fake_worlds_equal_cold_runs() -> None:
    """Cancels, interrupts, preemptions and give-ups leave no trace in anybody's tokens."""
    tally = await judge_fake_worlds(range(80))

    assert tally.wrong_seeds == []
    assert tally.turns > 500
    assert tally.slid > 100
    events = ("preemptions", "forced_parks", "turn interrupt", "late interrupt", "fork")
    lives = ("kill", "restart", "moved", "cache_hits")
    for event in (*events, *lives, "rewind", "mark", "restore"):
        assert tally.events[event] > 0, event


@pytest.mark.timeout(600)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_torch_schedules_in_float64() -> None:
    """The same on real models (hybrid, recurrent only, attention only), in the promised number.

    Each turn is judged by one plain forward pass. ``python -m tests.oracle --schedules 200`` runs
    more of them, and a test of the results holds that it was run on this code.
    """
    tally = await judge_torch_worlds(range(1000, 1070), dtype="float64")

    assert tally.wrong_seeds == []
    assert tally.schedules == 70
    for event in ("kill", "restart", "moved", "cache_hits", "forced_parks", "rewind", "restore"):
        assert tally.events[event] > 0, event
    assert tally.tokens > 8_000
    assert tally.slid > 30
