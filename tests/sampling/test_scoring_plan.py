"""Which known tokens a row is asked about, and how that is cut along with the row."""

import random
from collections.abc import Sequence

import pytest

from adapters.ragged.passes import PassBudget, cut
from kernel.outputs import Logprob
from kernel.scheduling.batch import build_step
from kernel.step import DeviceLimits, PromptScoring, StepRow
from kernel.turn import OpenTurn
from ownership import SlotIndex
from tests.kernel.turns import make_turn

LIMITS = DeviceLimits(num_slots=4, num_pages=0, page_size=4, max_rows=4, max_step_tokens=64)
TOLD = {1: Logprob(-1.0, 1)}


def asking(history: Sequence[int], new: Sequence[int]) -> OpenTurn:
    turn = make_turn("a", history=history, new=new, prompt_logprobs=2)
    turn.covered = 1 << 40
    return turn


def asked(turn: OpenTurn, start: int, end: int) -> dict[int, int]:
    """By position: the tokens that a row is asked about; then they are told."""
    scoring = turn.scoring(start, end)
    if scoring is None:
        return {}
    first = start + scoring.start + 1
    place = turn.first_scored(start) - turn.history_len
    turn.output.score_prompt(place, [TOLD] * len(scoring.targets))
    return dict(enumerate(scoring.targets, first))


def test_a_first_turn_is_asked_about_all_but_its_first_token() -> None:
    """Nothing comes before that one."""
    assert asked(asking([], [5, 6, 7]), 0, 3) == {1: 6, 2: 7}
    assert asked(asking([], [5]), 0, 1) == {}


def test_a_later_turn_is_asked_about_its_input_and_not_its_history() -> None:
    """From the token before its input on, which was pending."""
    assert asked(asking([1, 2, 3], [5, 6]), 2, 5) == {3: 5, 4: 6}
    assert asked(asking([1, 2, 3], [5, 6]), 0, 5) == {3: 5, 4: 6}
    assert asked(asking([1, 2, 3], []), 2, 3) == {}


def test_chunks_ask_about_each_token_once_however_they_are_cut() -> None:
    """Recomputed ones included: generated tokens that are absorbed again are no input."""
    draws = random.Random(4)
    for _ in range(200):
        history = [draws.randrange(90) for _ in range(draws.randrange(6))]
        new = [draws.randrange(90) for _ in range(1 + draws.randrange(9))]
        turn = asking(history, new)
        found: dict[int, int] = {}
        for _ in range(1 + draws.randrange(3)):
            position = draws.randrange(len(history)) if history else 0
            while position < turn.known_len:
                end = min(turn.known_len, position + 1 + draws.randrange(5))
                told = asked(turn, position, end)
                assert not found.keys() & told.keys()
                found |= told
                position = end
                if draws.random() < 0.1:
                    break
            if position == turn.known_len:
                turn.new.append(7)
        whole = [*history, *new]
        assert all(whole[place] == token for place, token in found.items())
        scored = turn.output.prompt_logprobs
        first = max(1, len(history))
        assert sorted(found) == list(range(first, len(history) + len(scored)))


def test_what_a_base_spared_the_turn_is_a_gap() -> None:
    """A state that lies within the input: its tokens were not computed, so none is told."""
    turn = asking([1], [5, 6, 7, 8])

    assert asked(turn, 3, 5) == {4: 8}
    assert turn.output.prompt_logprobs == [None, None, None, TOLD]


def test_only_turns_that_ask_are_asked_about() -> None:
    quiet, loud = asking([], [1, 2, 3]), asking([], [1, 2, 3])
    quiet.prompt_logprobs = None

    _, rows = build_step([quiet, loud], LIMITS)

    assert [row.scoring for row in rows] == [None, PromptScoring(0, [2, 3], 2)]


@pytest.mark.parametrize("start", [0, 2, 6])
@pytest.mark.parametrize("tokens", [1, 2, 3, 5, 100])
def test_a_row_that_is_cut_into_passes_asks_as_much_as_a_whole_one(start: int, tokens: int) -> None:
    """Each piece counts from its own first token."""
    targets = list(range(100, 109 - start))
    row = StepRow(
        SlotIndex(0), "kept", 50, range(9), (), None, None, PromptScoring(start, targets, 3)
    )
    budget = PassBudget(tokens=tokens, chunks=99, mask_cells=1 << 62, chunk_size=4)

    found: dict[int, int] = {}
    done = 0
    for (piece,) in cut([row], budget):
        if piece.scoring is not None:
            assert piece.scoring.count == 3
            assert 0 <= piece.scoring.start < len(piece.tokens)
            found |= dict(enumerate(piece.scoring.targets, done + piece.scoring.start))
        done += len(piece.tokens)

    assert found == dict(enumerate(targets, start))
