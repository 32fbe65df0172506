"""Devices that break their word about a step's rows: turns fail, nobody waits, nobody dies."""

from collections.abc import Callable

import attrs
import pytest

from adapters.fake_device import FakeDevice
from adapters.fake_device.workers import Job
from kernel import Engine, EngineConfig, SamplingError, SamplingParams, StepError
from kernel.step import DeviceStep, RowOutcome, StepDone, StepReport

GREEDY = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
CONFIG = EngineConfig(model="fake", page_size=4, num_slots=4, num_pages=32, max_model_len=64)

Outcomes = tuple[RowOutcome, ...]


class OddDevice(FakeDevice):
    """Reports what a test makes of the outcomes of each step."""

    def __init__(self, odd: Callable[[Outcomes], Outcomes]) -> None:
        super().__init__()
        self.odd: Callable[[Outcomes], Outcomes] | None = odd

    def _run(self, job: Job[DeviceStep, StepDone]) -> StepReport:
        report = super()._run(job)
        if not isinstance(report, StepDone) or self.odd is None:
            return report
        return attrs.evolve(report, tokens=self.odd(report.tokens))


async def served_after(device: OddDevice, error: type[Exception], why: str) -> None:
    """The turn fails as it should, and the engine goes on as if nothing had been."""
    async with Engine.open(CONFIG, device=device) as engine, engine.session() as session:
        with pytest.raises(error, match=why):
            async with session.turn([1, 2, 3], GREEDY, timeout_s=5) as turn:
                await turn.wait()
        device.odd = None
        async with session.turn([1, 2, 3], GREEDY) as turn:
            assert len((await turn.wait()).token_ids) == 4
        stats = engine.stats()

    assert (stats.restarts, stats.reclaimed, stats.turns_failed) == (0, 0, 1)


@pytest.mark.parametrize("more", [-1, 1])
async def test_outcomes_that_are_not_one_for_each_row_fail_the_step(more: int) -> None:
    """Whose they are can't be told; the scheduler, which can't help it, lives."""

    def odd(outcomes: Outcomes) -> Outcomes:
        return (*outcomes, 5) if more > 0 else outcomes[:-1]

    await served_after(OddDevice(odd), StepError, "outcomes for 1 rows")


async def test_a_row_that_was_to_draw_and_reports_nothing_fails_its_turn() -> None:
    """There is nothing left to absorb, so no later step would have a row of it."""
    await served_after(
        OddDevice(lambda outcomes: (None,) * len(outcomes)), SamplingError, "no token"
    )
