"""The fake device's memory: bugs of ownership and of position change tokens."""

from itertools import pairwise

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.fake_device import FakeDevice, open_fake
from kernel.step import (
    CopyOf,
    InitialState,
    PageCopy,
    RowOutcome,
    RowSampling,
    StepRow,
)
from ownership import NO_SLOT, PageIndex, SlotIndex
from tests.adapters.fake_bench import (
    GREEDY,
    OTHER,
    PROMPT,
    TURN,
    Bench,
    bench_with_prompt,
    cold,
    row,
)


@given(
    history=st.lists(st.integers(0, 999), min_size=1, max_size=30),
    cuts=st.sets(st.integers(1, 29)),
    kind=st.sampled_from(["fake", "fake-recurrent", "fake-attention"]),
)
def test_tokens_do_not_depend_on_how_a_prompt_is_cut(
    history: list[int], cuts: set[int], kind: str
) -> None:
    """Chunked prefill, decode and replay must agree, as they do (nearly) on a real model."""
    opened = open_fake(model=kind, device="cpu", dtype="auto").device
    assert isinstance(opened, FakeDevice)
    bench = Bench(opened)
    slot = 0 if opened.model.uses_slots else NO_SLOT
    edges = [0, *sorted(cut for cut in cuts if cut < len(history)), len(history)]
    got: RowOutcome = None
    for start, end in pairwise(edges):
        initial: InitialState = "kept" if start else "zeros"
        chunk = row(history[start:end], slot=slot, initial=initial, at=start, pages=range(9))
        (got,) = bench.tokens(chunk)

    assert got == cold(history, kind=kind)
    assert not bench.device.poison_reads


def test_rows_of_a_step_do_not_influence_each_other() -> None:
    """Batching changes nothing."""
    bench = bench_with_prompt()
    other = row((1, 2, 3), slot=4, initial="zeros", pages=(9,))

    assert bench.tokens(row((5,), at=6), other) == (cold((*PROMPT, 5)), cold((1, 2, 3)))


def test_prefill_row_draws_nothing() -> None:
    """A chunk that isn't the last has no logits to draw from."""
    assert Bench().tokens(row((1,), initial="zeros", sampling=None)) == (None,)


def test_copy_of_slot_and_tail_continues_like_the_base_and_leaves_it_alone() -> None:
    """What every later turn of a session does: the base's full page is shared."""
    bench = bench_with_prompt()
    turn = row((5,), slot=1, initial=CopyOf(SlotIndex(0)), at=6, pages=(0, 7), tail=(1, 7))

    assert bench.tokens(turn) == (cold((*PROMPT, 5)),)
    assert bench.tokens(row((6,), at=6)) == (cold((*PROMPT, 6)),)


@pytest.mark.parametrize(
    "planted",
    [
        attrs.evolve(TURN, initial="zeros"),
        attrs.evolve(TURN, initial="kept"),
        attrs.evolve(TURN, tail_copy=None),
        attrs.evolve(TURN, tail_copy=PageCopy(PageIndex(0), PageIndex(7))),
        attrs.evolve(TURN, position=5),
        attrs.evolve(TURN, position=7),
        attrs.evolve(TURN, pages=[PageIndex(8), PageIndex(7)]),
    ],
    ids=[
        "slot zeroed",
        "slot not copied",
        "tail not copied",
        "wrong tail",
        "position too low",
        "position too high",
        "stale page table",
    ],
)
def test_planted_bug_changes_the_token(planted: StepRow) -> None:
    """The device is the witness of every test of the kernel, so it must not be forgiving."""
    assert bench_with_prompt().tokens(planted) != (cold((*PROMPT, 5)),)


@pytest.mark.parametrize(
    ("kind", "position"), [("fake-recurrent", 5), ("fake-recurrent", 7), ("fake-attention", 5)]
)
def test_wrong_position_changes_the_token_of_each_kind_of_model(kind: str, position: int) -> None:
    """Recurrent-only and attention-only models have one witness each."""
    opened = open_fake(model=kind, device="cpu", dtype="auto").device
    assert isinstance(opened, FakeDevice)
    bench = Bench(opened)
    slot = 0 if opened.model.uses_slots else NO_SLOT
    bench.tokens(row(PROMPT, slot=slot, initial="zeros"))

    assert bench.tokens(row((5,), slot=slot, at=position)) != (cold((*PROMPT, 5), kind=kind),)


def test_aliased_slot_changes_the_token_of_its_first_owner() -> None:
    """The seed's bug: a slot freed twice serves two clients, in steps that alternate."""
    bench = bench_with_prompt()
    bench.tokens(row((9,), slot=0, initial="zeros", pages=(9,)))

    assert bench.tokens(row((5,), at=6)) != (cold((*PROMPT, 5)),)


@pytest.mark.parametrize("offset", range(4))
def test_aliased_full_page_changes_the_token_whatever_was_overwritten(offset: int) -> None:
    """Attention reads all of the history, not the last position."""
    bench = bench_with_prompt()
    intruder = row((9,), slot=2, initial="zeros", at=offset, pages=(0,), sampling=None)
    bench.tokens(intruder)

    assert bench.tokens(row((5,), at=6)) != (cold((*PROMPT, 5)),)


def test_content_beyond_the_position_is_never_read() -> None:
    """A page that is not poisoned when it changes hands holds old keys; attention masks them."""
    bench = Bench()
    bench.tokens(row(range(100, 112), initial="zeros", pages=(0, 1, 2)))

    assert bench.tokens(row(PROMPT, slot=1, initial="zeros", pages=(2, 1))) == (cold(PROMPT),)
    assert bench.tokens(row((5,), slot=1, at=6, pages=(2, 1))) == (cold((*PROMPT, 5)),)


def test_content_beyond_the_position_is_not_read_from_a_copied_tail_either() -> None:
    """The copy is of the whole page."""
    bench = Bench()
    bench.tokens(row((*PROMPT, 98, 99), initial="zeros"))
    bench.tokens(row(PROMPT, initial="zeros"))

    assert bench.tokens(TURN) == (cold((*PROMPT, 5)),)


def test_freed_memory_is_poison_for_who_still_reads_it() -> None:
    """A use after free shows at once, not only when the memory has a new owner."""
    bench = bench_with_prompt()
    late = row((5,), at=6)

    assert bench.tokens(late, freed_slots=(0,), freed_pages=(0,)) != (cold((*PROMPT, 5)),)
    assert [(read.what, read.index) for read in bench.device.poison_reads] == [
        ("slot", 0),
        ("page", 0),
    ]


def test_freed_memory_may_be_taken_again_in_the_same_step() -> None:
    """Poison goes before zeros and copies."""
    bench = bench_with_prompt()
    again = row(PROMPT, initial="zeros", pages=(1, 0))

    assert bench.tokens(again, freed_slots=(0,), freed_pages=(0, 1)) == (cold(PROMPT),)
    assert not bench.device.poison_reads


def test_memory_that_was_never_written_is_poison() -> None:
    """Arenas are allocated, not cleared."""
    bench = Bench()
    bench.tokens(row((5,), at=6))

    assert {read.what for read in bench.device.poison_reads} == {"slot", "page"}


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ((OTHER, attrs.evolve(OTHER, pages=[PageIndex(10)])), "two rows write one slot"),
        ((OTHER, attrs.evolve(OTHER, slot=SlotIndex(3))), "two rows write one page"),
        ((OTHER, row((5,), at=6, pages=(9, 1))), "read by one row, written by another"),
        ((OTHER, attrs.evolve(TURN, initial=CopyOf(SlotIndex(4)))), "copied by one row"),
        (
            (OTHER, attrs.evolve(TURN, tail_copy=PageCopy(PageIndex(9), PageIndex(7)))),
            "source of a tail copy",
        ),
        ((attrs.evolve(OTHER, slot=NO_SLOT),), "no slot"),
        ((row(range(9), pages=(0, 1)),), "does not cover"),
        ((row((1,), at=4, pages=(0,)),), "IndexError"),
        ((row(range(65), pages=range(20)),), "beyond"),
        ((row(()),), "no tokens"),
        ((row((1000,)),), "vocabulary"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_plan_that_cannot_be_right_is_a_fault(rows: tuple[StepRow, ...], why: str) -> None:
    """Two writers in one step could end in the right token by luck."""
    fault = bench_with_prompt().fault(*rows)

    assert why in fault.why
    assert isinstance(fault.error, Exception)


def test_slot_of_a_model_without_slots_is_a_fault() -> None:
    """Claims of such a model have NO_SLOT, never a number that nobody uses."""
    bench = Bench(FakeDevice(uses_slots=False))

    assert "has none" in bench.fault(row(PROMPT, slot=0)).why


def sampled(key: int, index: int, *, top_k: int = 0, top_p: float = 1.0) -> RowSampling:
    return RowSampling(temperature=1.0, top_k=top_k, top_p=top_p, key=key, index=index)


def test_draw_is_a_function_of_key_index_and_memory() -> None:
    """Different keys and indices draw differently; equal ones alike, on any device."""
    draws = [cold(PROMPT, sampling=sampled(key, index)) for key in range(9) for index in range(9)]

    assert len(set(draws)) > 70
    assert cold(PROMPT, sampling=sampled(3, 4)) == draws[3 * 9 + 4]
    assert cold(PROMPT, sampling=sampled(3, 4)) != cold(PROMPT[:-1], sampling=sampled(3, 4))


def test_one_candidate_is_greedy() -> None:
    """top_k=1 and a tiny top_p leave the likeliest token, as on a real model."""
    assert cold(PROMPT, sampling=sampled(1, 2, top_k=1)) == cold(PROMPT)
    assert cold(PROMPT, sampling=sampled(1, 2, top_p=1e-9)) == cold(PROMPT)


def test_banned_token_is_not_drawn() -> None:
    """End of sequence before min_tokens."""
    likeliest = cold(PROMPT)
    second = cold(PROMPT, sampling=attrs.evolve(GREEDY, banned=(likeliest,)))

    assert second != likeliest
    assert cold(PROMPT, sampling=attrs.evolve(GREEDY, banned=(likeliest, second))) != second


def test_step_with_every_token_banned_is_a_fault() -> None:
    """It must not search for ever."""
    bench = Bench(FakeDevice(vocab_size=3))
    banned = attrs.evolve(GREEDY, banned=(0, 1, 2))

    assert "banned" in bench.fault(row((1,), initial="zeros", sampling=banned)).why
