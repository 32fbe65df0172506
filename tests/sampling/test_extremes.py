"""Parameters and logits at the ends of what numbers can say."""

import threading
from typing import Any

import pytest
import torch
from torch import Tensor

from adapters.torch_device.sampling import draw, uniform, weights
from adapters.torch_device.sampling.arrays import numbers, ranked, whole_table
from adapters.torch_device.threads import flush_denormals_in_this_thread
from kernel.requests.logit_rules import LogitsProcessor
from kernel.step import RowFault, RowOutcome, RowSampling
from tests.sampling.rows import how, random_logits, ruled

KEYS = range(20)


def in_a_workers_thread(logits: Tensor, rows: list[RowSampling]) -> list[RowOutcome]:
    """Draw as a worker does: numbers next to 0 are 0 in its thread."""
    drawn: list[RowOutcome] = []

    def work() -> None:
        flush_denormals_in_this_thread()
        drawn.extend(draw(logits.clone(), rows))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return drawn


@pytest.mark.parametrize("count", [1, 2, 20, 64, 99, 100, 101])
def test_the_highest_are_those_of_a_stable_sort_whatever_is_equal(count: int) -> None:
    """Few values, as bfloat16 has them; rows that are banned but for a few; rows of one value."""
    logits = random_logits(30, 100, 1).round()
    logits[10:20, 3:] = float("-inf")
    logits[20:22] = 1.5
    logits[22, 50] = float("nan")
    values, ids = ranked(logits.clone(), count)
    right, order = logits.sort(dim=-1, descending=True, stable=True)

    assert whole_table(ids) == whole_table(order[:, :count])
    assert torch.equal(values.nan_to_num(), right[:, :count].nan_to_num())


@pytest.mark.parametrize("tiny", [1e-300, 1e-310, 5e-324])
def test_the_smallest_top_p_and_temperature_are_greedy(tiny: float) -> None:
    """The likeliest is kept though the share wanted be nothing, as the processor sees it."""
    logits = random_logits(3, 200, 2)
    best = numbers(logits.argmax(-1))

    for row in (how(top_p=tiny), how(tiny), how(tiny, 5), ruled(temperature=tiny, typical_p=0.5)):
        assert in_a_workers_thread(logits, [row] * 3) == best, row


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_bias_or_a_penalty_beyond_all_numbers_is_the_highest_number(
    dtype: torch.dtype, temperature: float
) -> None:
    """Infinitely high logits have no distribution: a banned token could come of them."""
    logits = random_logits(1, 30, 3).to(dtype)
    likely = int(logits[0, :20].argmax())

    for key in KEYS:
        biased = ruled(temperature=temperature, key=key, logit_bias=((7, 1.7e308),))
        penalised = ruled(
            [likely],
            temperature=temperature,
            key=key,
            repetition_penalty=1e-308,
            bad_words=tuple((token,) for token in range(20, 30)),
        )
        assert draw(logits.clone(), [biased]) == [7]
        assert draw(logits.clone(), [penalised]) == [likely]


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    "kind", [{"temperature": 0}, {"top_p": 0.5}, {"typical_p": 0.5}, {}], ids=str
)
def test_logits_that_are_no_numbers_yield_no_token_that_is_not_allowed(
    broken: float, kind: dict[str, Any]
) -> None:
    """It fails its own turn instead."""
    logits = random_logits(2, 30, 6)
    logits[0, [3, 8]] = broken
    allowed = ruled(allowed_token_ids=(2, 3, 5), **kind)
    spared = ruled(allowed_token_ids=(2, 5), **kind)

    fault, right = draw(logits, [allowed, spared])

    assert fault == RowFault("the model's logits are no numbers")
    assert right in (2, 5)
    logits[1, [3, 8]] = broken
    assert draw(logits[1:], [spared]) == [right]  # what is banned may be anything


def test_a_vocabulary_of_one_token_has_one_draw() -> None:
    """Whatever limits it."""
    kinds = [how(), how(0), how(0.5, 3), how(top_p=0.3), ruled(typical_p=0.2), ruled(min_p=0.5)]

    assert draw(random_logits(len(kinds), 1, 4), kinds) == [0] * len(kinds)


def test_a_processor_may_return_what_it_keeps_whatever_the_next_one_does_with_it() -> None:
    """A constant of the caller's; the next processor changes its logits in place."""
    constant = torch.zeros(20, dtype=torch.float64)

    def keep(_generated: list[int], _logits: Tensor) -> Tensor:
        return constant

    def change(_generated: list[int], logits: Tensor) -> Tensor:
        logits[4] = 50.0
        return logits

    made = [LogitsProcessor.of(keep), LogitsProcessor.of(change)]
    row = ruled(temperature=0, processors=tuple(one for one in made if one is not None))

    assert draw(random_logits(1, 20, 5), [row]) == [4]
    assert not constant.any()


def test_a_top_p_that_is_reached_exactly_keeps_no_more() -> None:
    """As in transformers: of four that are alike, half of the probability is two."""
    logits = torch.full((len(KEYS), 6), float("-inf"), dtype=torch.float64)
    logits[:, [0, 2, 3, 5]] = 1.0

    drawn = draw(logits, [how(top_p=0.5, key=key) for key in KEYS])

    assert {*drawn} == {0, 2}


def test_a_seed_draws_by_the_published_numbers_of_splitmix64() -> None:
    """Else a seed would draw other tokens in the next version. The state of this key is 1234567."""
    published = (6457827717110365317, 3203168211198807973, 9817491932198370423)

    drawn = [uniform(0x4373FDBF155465A3, index) for index in range(len(published))]

    assert drawn == [(number >> 14) / 2**50 for number in published]


@pytest.mark.parametrize("row", [how(), how(top_p=0.9), ruled(typical_p=0.9)])
def test_the_lowest_number_draws_no_token_that_is_banned(
    row: RowSampling, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 0 the look-up stands at the beginning, before ids of no weight."""

    def lowest(_key: int, _index: int) -> float:
        return 0.0

    monkeypatch.setattr(weights, "uniform", lowest)
    logits = random_logits(1, 20, 7)
    logits[:, :5] = float("-inf")

    (drawn,) = draw(logits, [row])

    assert isinstance(drawn, int)
    assert drawn >= 5
