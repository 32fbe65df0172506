"""The fake device keeps to a turn's rules as far as they can be seen without logits."""

from collections.abc import Callable
from typing import Any

import pytest

from adapters.fake_device import FakeDevice
from kernel.requests.logit_rules import KnownTokens, LogitRules, LogitsProcessor
from kernel.step import PromptScoring, RowFault, RowOutcome, RowSampling, RowScores, StepDone
from tests.adapters.fake_bench import Bench, row

PROMPT = (3, 1, 4, 1, 5)


def processor(call: Callable[..., Any]) -> tuple[LogitsProcessor, ...]:
    made = LogitsProcessor.of(call)
    assert made is not None
    return (made,)


def outcome(
    temperature: float = 0.0, generated: tuple[int, ...] = (), key: int = 0, **rules: Any
) -> RowOutcome:
    """What one row of a fresh device comes to."""
    known = KnownTokens((), 0, (*PROMPT, *generated), len(PROMPT))
    sampling = RowSampling(
        temperature, 0, 1.0, key, len(generated), (), LogitRules(known=known, **rules)
    )
    (found,) = Bench(FakeDevice(vocab_size=50)).tokens(
        row(PROMPT, initial="zeros", sampling=sampling)
    )
    return found


def raise_first(_generated: list[int], logits: list[float]) -> list[float]:
    return [1.0, *logits[1:]]


class Only:
    """A constraint that allows one token, and is complete with it."""

    def __init__(self, token: int) -> None:
        self.token = token

    def fill(self, generated: Any, into: Any, /) -> None:
        into[:] = [0] * len(into)
        into[self.token // 32] = 1 << self.token % 32

    def is_complete(self, generated: Any, /) -> bool:
        return bool(generated[-1] == self.token)


def test_what_is_not_allowed_is_not_drawn() -> None:
    """Bad words by what was generated, allowed ids, a constraint."""
    found = [outcome(1.0, key=key, allowed_token_ids=(7, 8, 9)) for key in range(40)]
    assert set(found) == {7, 8, 9}

    words = ((7,), (2, 8))
    found = [outcome(1.0, (2,), key, allowed_token_ids=(7, 8, 9), bad_words=words)
             for key in range(10)]  # fmt: skip
    assert set(found) == {9}
    assert outcome(constraint=Only(33)) == RowScores(33, is_last=True)


@pytest.mark.parametrize(
    "rules",
    [
        {"logit_bias": ((3, 1.0),)},
        {"repetition_penalty": 1.2},
        {"presence_penalty": 0.5},
        {"processors": processor(raise_first)},
    ],
    ids=str,
)
def test_what_changes_logits_changes_some_draw(rules: dict[str, Any]) -> None:
    """A rule that were lost on the way would go unnoticed otherwise."""
    plain = [outcome(1.0, (9,), key) for key in range(5)]
    assert [outcome(1.0, (9,), key, **rules) for key in range(5)] != plain
    assert [outcome(1.0, (9,), key, **rules) for key in range(5)] == [
        outcome(1.0, (9,), key, **rules) for key in range(5)
    ]


def test_code_that_raises_is_a_fault_of_its_row() -> None:
    """And a row with nothing left to draw is one, too."""

    def fail(_prompt: object, _generated: object, _logits: object) -> None:
        raise LookupError("planted")

    found = outcome(processors=processor(fail))
    assert isinstance(found, RowFault)
    assert isinstance(found.error, LookupError)
    assert outcome(allowed_token_ids=(3,), bad_words=((3,),)) == RowFault(
        "no token is left to draw"
    )


def test_log_probabilities_are_told_where_they_are_asked_for() -> None:
    """So many of the likeliest, and the token itself; the same each time."""
    found = outcome(logprobs=3)
    assert isinstance(found, RowScores)
    assert found.drawn is not None
    assert found.token in found.drawn
    assert 3 <= len(found.drawn) <= 4
    assert found == outcome(logprobs=3)


def test_a_token_that_is_the_last_is_so_beside_scores_of_the_prompt() -> None:
    known = KnownTokens((), 0, PROMPT, len(PROMPT))
    rules = LogitRules(known=known, constraint=Only(33))
    sampling = RowSampling(0.0, 0, 1.0, 0, 0, (), rules)
    scoring = PromptScoring(0, PROMPT[1:], 0)
    (found,) = Bench(FakeDevice(vocab_size=50)).tokens(
        row(PROMPT, initial="zeros", sampling=sampling, scoring=scoring)
    )

    assert isinstance(found, RowScores)
    assert (found.token, found.is_last, len(found.prompt)) == (33, True, len(PROMPT) - 1)


class NeverSure(Only):
    def is_complete(self, generated: Any, /) -> bool:
        raise LookupError(f"after {generated}")


def test_a_constraint_that_fails_after_the_draw_spoils_its_own_row() -> None:
    found = outcome(constraint=NeverSure(33))

    assert isinstance(found, RowFault)
    assert isinstance(found.error, LookupError)


def test_known_tokens_are_told_about_by_token_and_position() -> None:
    """However they are cut."""
    whole = Bench()
    whole.submit(row((1, 2, 3, 4), initial="zeros", sampling=None,
                     scoring=PromptScoring(0, (2, 3, 4), 2)))  # fmt: skip
    parts = Bench()
    parts.submit(row((1, 2), initial="zeros", sampling=None, scoring=PromptScoring(0, (2, 3), 2)))
    parts.submit(row((3, 4), at=2, sampling=None, scoring=PromptScoring(0, (4,), 2)))

    assert _told(whole) == _told(parts)
    assert [len(entry) >= 2 for entry in _told(whole)] == [True] * 3


def _told(bench: Bench) -> list[Any]:
    told: list[Any] = []
    for report in bench.reports:
        assert isinstance(report, StepDone)
        (found,) = report.tokens
        assert isinstance(found, RowScores)
        told += found.prompt
    return told
