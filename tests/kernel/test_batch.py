"""One step: decode rows first, then chunks by rank, within the budget of tokens."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kernel.scheduling.batch import build_step
from kernel.step import DeviceLimits, PlannedRow
from kernel.turn import OpenTurn
from tests.kernel.turns import make_turn


def limits(tokens: int, rows: int = 8) -> DeviceLimits:
    return DeviceLimits(
        num_slots=8, num_pages=64, page_size=4, max_rows=rows, max_step_tokens=tokens
    )


def turn(
    name: str, *, length: int, position: int = 0, covered: int = 1000, **fields: Any
) -> OpenTurn:
    made = make_turn(name, arrival=int(name), new=list(range(100, 100 + length)), **fields)
    made.position = position
    made.covered = covered
    return made


def step(running: list[OpenTurn], tokens: int) -> dict[str, PlannedRow]:
    turns, rows = build_step(running, limits(tokens))
    return {turn.id: row for turn, row in zip(turns, rows, strict=True)}


def sizes(rows: dict[str, PlannedRow]) -> dict[str, int]:
    return {name: len(row.tokens) for name, row in rows.items()}


def test_decode_rows_come_first_whatever_their_rank() -> None:
    """One token each keeps every stream moving; a senior prompt takes what is left."""
    rows = step([turn("0", length=50), turn("1", length=9, position=8)], 16)

    assert list(rows) == ["1", "0"]
    assert sizes(rows) == {"1": 1, "0": 15}


def test_the_rest_goes_to_the_senior_prompt_before_the_junior_one() -> None:
    """Chunks in order of rank; a prompt for which nothing is left waits for the next step."""
    running = [turn("0", length=6), turn("1", length=6), turn("2", length=6)]

    assert sizes(step(running, 8)) == {"0": 6, "1": 2}


def test_a_chunk_that_is_not_the_last_draws_nothing() -> None:
    """Its logits are those of the middle of a prompt."""
    first = step([turn("0", length=10)], 4)["0"]
    last = step([turn("0", length=10, position=8)], 4)["0"]

    assert (list(first.tokens), first.sampling) == ([100, 101, 102, 103], None)
    assert list(last.tokens) == [108, 109]
    assert last.sampling is not None


def test_a_decode_row_absorbs_the_last_token() -> None:
    """The token that was drawn last is the one that has not been absorbed."""
    (row,) = step([turn("0", length=5, position=4)], 8).values()

    assert list(row.tokens) == [104]
    assert row.sampling is not None


def test_a_continued_history_is_decoded_from_its_own_last_token() -> None:
    """An empty prompt continues: the pending token of the log is all there is to absorb."""
    made = make_turn("0", history=[5, 6, 7], new=[])
    made.position, made.covered = 2, 8
    (row,) = step([made], 8).values()

    assert list(row.tokens) == [7]


def test_a_chunk_may_begin_in_the_history_and_end_in_the_input() -> None:
    """Pending tokens are absorbed together with what is new."""
    made = make_turn("0", history=[1, 2, 3, 4], new=[5, 6])
    made.position, made.covered = 2, 8
    (row,) = step([made], 8).values()

    assert list(row.tokens) == [3, 4, 5, 6]


def test_an_append_absorbs_all_but_its_last_token_and_draws_nothing() -> None:
    """The last token is held back: the log ends with one that the state has not absorbed."""
    (row,) = step([turn("0", length=5, kind="append")], 8).values()

    assert list(row.tokens) == [100, 101, 102, 103]
    assert row.sampling is None


def test_a_first_phase_stops_before_the_last_token_of_the_history() -> None:
    """It is committed there, and nothing of the input may be in it."""
    made = make_turn("0", history=[1, 2, 3, 4, 5], new=[9], absorb_first=True)
    made.position, made.covered = 1, 8
    (row,) = step([made], 8).values()

    assert list(row.tokens) == [2, 3, 4]
    assert row.sampling is None


def test_a_turn_whose_next_token_has_no_page_is_left_out() -> None:
    """It grows first; others go on meanwhile."""
    rows = step([turn("0", length=9, position=8, covered=8), turn("1", length=3)], 8)

    assert list(rows) == ["1"]


def test_nothing_to_run_is_no_step() -> None:
    """A launch of no claims would be an error."""
    assert build_step([], limits(8)) == ([], [])


def test_stop_tokens_are_banned_before_min_tokens() -> None:
    """The device draws among the others; afterwards a greedy row looks at logits alone."""
    made = turn("0", length=3, position=2, min_tokens=2, stop_ids=frozenset([9, 4]))
    (early,) = step([made], 8).values()
    made.new += [50, 51]
    made.position = 4
    (later,) = step([made], 8).values()

    assert early.sampling is not None
    assert early.sampling.banned == (4, 9)
    assert later.sampling is not None
    assert later.sampling.banned == ()


def test_draws_are_numbered_by_the_turns_own_tokens() -> None:
    """Randomness is a function of key and index: no batch and no preemption changes it."""
    made = turn("0", length=3, position=2, temperature=1.0, key=77)
    (first,) = step([made], 8).values()
    made.new += [50, 51]
    made.position = 4
    (third,) = step([made], 8).values()

    assert first.sampling is not None
    assert third.sampling is not None
    assert (first.sampling.key, first.sampling.index) == (77, 0)
    assert (third.sampling.key, third.sampling.index) == (77, 2)


LENGTHS = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 39)), min_size=1, max_size=8)


@given(LENGTHS, st.integers(8, 64))
def test_every_step_keeps_the_budget_and_advances_the_most_senior(
    shapes: list[tuple[int, int]], budget: int
) -> None:
    """By induction every turn ends; and a device never gets more than it was told to expect."""
    running = [
        turn(str(number), length=length, position=min(position, length - 1))
        for number, (length, position) in enumerate(shapes)
    ]
    rows = step(running, budget)

    assert "0" in rows
    assert sum(sizes(rows).values()) <= budget
    for made in running:
        if made.id in rows:
            end = made.position + len(rows[made.id].tokens)
            assert made.position < end <= made.target
            assert (rows[made.id].sampling is not None) == (end == made.target)
