"""Code that isn't ours fails its own row: the others' draws, logits and memory are untouched."""

import gc
import re
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor

from adapters.torch_device.sampling import draw
from kernel.requests.logit_rules import LogitsProcessor
from kernel.step import RowFault, RowSampling
from tests.sampling.rows import how, random_logits, ruled


def raises(_generated: list[int], _logits: Tensor) -> Tensor:
    raise LookupError("planted")


def leaves(_generated: list[int], _logits: Tensor) -> Tensor:
    raise SystemExit(3)


class Speechless(Exception):
    def __str__(self) -> str:
        raise LookupError("no words")


def says_nothing(_generated: list[int], _logits: Tensor) -> Tensor:
    raise Speechless


def babbles(_generated: list[int], _logits: Tensor) -> Tensor:
    raise LookupError("x" * 9000)


def blames_itself(_generated: list[int], _logits: Tensor) -> Tensor:
    error = LookupError("planted")
    raise error from error


def forgets(_generated: list[int], logits: Tensor) -> None:
    logits[0] = 1


def shortens(_generated: list[int], logits: Tensor) -> Tensor:
    return logits[:-1]


def divides(_generated: list[int], logits: Tensor) -> Tensor:
    return logits / 0


def bans_all(_generated: list[int], logits: Tensor) -> Tensor:
    return torch.full_like(logits, float("-inf"))


def with_processor(call: Any) -> RowSampling:
    made = LogitsProcessor.of(call)
    assert made is not None
    return ruled([1], [2], processors=(made,))


class Broken:
    """A constraint that fails."""

    def fill(self, generated: Any, into: Any, /) -> None:
        into[:] = 0
        raise ValueError("no such state")

    def is_complete(self, generated: Any, /) -> bool:
        return False


class Empty(Broken):
    """A constraint that allows nothing."""

    def fill(self, generated: Any, into: Any, /) -> None:
        into[:] = 0


class Undecided(Broken):
    """A constraint that can't say whether it is complete."""

    def fill(self, generated: Any, into: Any, /) -> None:
        """Everything is allowed."""

    def is_complete(self, generated: Any, /) -> bool:
        raise ValueError("who knows")


FAULTS: list[tuple[RowSampling, str]] = [
    (with_processor(raises), "raises raised LookupError: planted"),
    (with_processor(leaves), "leaves raised SystemExit: 3"),
    (with_processor(says_nothing), "says_nothing raised Speechless, which can't say why"),
    (with_processor(babbles), r"babbles raised LookupError: x{387} \.\.\."),
    (with_processor(blames_itself), "blames_itself raised LookupError: planted"),
    (with_processor(forgets), "forgets returned NoneType instead of the logits"),
    (with_processor(shortens), r"shortens returned logits of shape \(19,\) instead of \(20,\)"),
    (with_processor(divides), "divides returned logits that are no numbers, or infinitely high"),
    (with_processor(bans_all), "no token is left to draw"),
    (ruled(constraint=Broken()), "structured output raised ValueError: no such state"),
    (ruled(constraint=Empty()), "no token is left to draw"),
    (ruled(constraint=Undecided()), "structured output raised ValueError: who knows"),
    (ruled(allowed_token_ids=(3,), bad_words=((3,),)), "no token is left to draw"),
    (how(banned=tuple(range(20))), "no token is left to draw"),
    (with_processor(raises), "planted"),
]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_each_fault_ends_its_own_row_and_no_other(temperature: float) -> None:
    """All faults in one batch, a good row beside each."""
    logits = random_logits(2 * len(FAULTS), 20, 1)
    good = how(temperature, key=5)
    rows = [row for bad, _ in FAULTS for row in (bad, good)]
    alone = [draw(raw[None].clone(), [good])[0] for raw in logits[1::2]]

    outcomes = draw(logits, rows)

    assert outcomes[1::2] == alone
    for outcome, (_, why) in zip(outcomes[::2], FAULTS, strict=True):
        assert isinstance(outcome, RowFault), why
        assert re.search(why, outcome.why)


def test_the_error_says_where_it_was_raised_and_keeps_no_tensor_alive() -> None:
    """A caller may keep an error for long; a step's logits are megabytes."""
    kept: list[weakref.ref[Tensor]] = []

    def remember(_generated: list[int], logits: Tensor) -> Tensor:
        kept.append(weakref.ref(logits))
        try:
            raise KeyError("inner")
        except KeyError:
            raise ExceptionGroup("outer", [part(logits), part(logits)]) from part(logits)

    def part(_logits: Tensor) -> LookupError:
        try:
            raise LookupError("part")
        except LookupError as error:
            return error

    logits = random_logits(1, 20, 2)
    kept.append(weakref.ref(logits))
    (outcome,) = draw(logits, [with_processor(remember)])
    del logits
    gc.collect()

    assert isinstance(outcome, RowFault)
    assert outcome.error is not None
    assert 'raise KeyError("inner")' in "".join(outcome.error.__notes__)
    assert [ref() for ref in kept] == [None, None]
