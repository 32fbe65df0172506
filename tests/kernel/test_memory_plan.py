"""How many slots and pages an engine gets out of how much memory."""

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.config import EngineConfig, plan_pools
from kernel.errors import NotEnoughMemory, ValidationError
from kernel.memory.byte_sizes import format_bytes, parse_bytes
from kernel.memory.device import DeviceMemory
from kernel.memory.plan import MemoryPlan
from kernel.step import ModelSpec

SLOT, TOKEN, PAGE = 1000, 10, 16
"""Bytes of a slot, bytes of a token's keys and values, tokens of a page."""
USUAL = 2048 * TOKEN
"""Bytes of the pages of a sequence of usual length."""


def spec(*, slots: bool = True, pages: bool = True, max_model_len: int = 4096) -> ModelSpec:
    return ModelSpec(
        name="toy",
        vocab_size=10,
        max_model_len=max_model_len,
        eos_token_ids=(),
        uses_slots=slots,
        uses_pages=pages,
        slot_bytes=SLOT if slots else 0,
        page_token_bytes=TOKEN if pages else 0,
    )


def memory(free: int | None = None, weights: int = 0, step: int = 0) -> DeviceMemory:
    return DeviceMemory(free_bytes=free, weights_bytes=weights, step_bytes=step)


def plan(model: ModelSpec, there: DeviceMemory | None, **options: Any) -> MemoryPlan:
    return plan_pools(EngineConfig.from_dict({"max_num_seqs": 4, **options}), model, there)


def test_with_plenty_each_running_turn_has_room_beside_the_state_it_started_from() -> None:
    """A gigabyte that nobody asked for stays where it is."""
    found = plan(spec(), memory(free=10**9))

    assert (found.num_slots, found.num_pages) == (8, 8 * 128)
    assert found.usual_sequences == 8


def test_without_sessions_there_is_nothing_to_start_from_but_one() -> None:
    """Bounded by the sessions that may be open at all."""
    assert plan(spec(), memory(free=10**9), max_sessions=1).num_slots == 5


def test_without_a_word_on_memory_the_pools_are_for_the_running_turns() -> None:
    """Devices of somebody else, which say nothing."""
    assert plan(spec(), None).num_slots == 4
    assert plan(spec(), memory(free=None)).num_slots == 8


@pytest.mark.parametrize("there", [None, memory(free=None)], ids=["no word", "no number"])
def test_a_length_that_is_given_has_room_where_nobody_knows_the_memory(
    there: DeviceMemory | None,
) -> None:
    """One row: the pages of a sequence of usual length would cut every turn short, unasked."""
    options = {"max_num_seqs": 1, "max_sessions": 1}
    found = plan(spec(max_model_len=100_000), there, max_model_len=50_000, **options)
    assert found.largest_turn == 50_000

    usual = plan(spec(max_model_len=100_000), there, **options)
    assert usual.num_pages == usual.num_slots * 128


def test_too_little_for_all_is_shared_alike() -> None:
    """Slots and pages in the proportion of a sequence, out of 80 % of what is free."""
    found = plan(spec(), memory(free=100_000, step=5_000))
    room = 80_000 - 5_000 - SLOT - PAGE * TOKEN

    assert found.num_slots == room // (SLOT + USUAL) == 3
    assert found.num_pages == 3 * 128
    assert found.slots_bytes + found.pages_bytes <= 75_000


def test_a_small_share_that_nobody_asked_for_is_exceeded_for_one_turn_but_not_for_two() -> None:
    """A processor's memory is for others too; but an engine that could open does."""

    def slots(free: int) -> int:
        there = attrs.evolve(memory(free=free), unasked_share=0.125)
        return plan(spec(), there).num_slots

    least = 2 * SLOT + USUAL + PAGE * TOKEN
    assert slots(8 * (least + SLOT + USUAL)) == 2
    assert slots(8 * least) == 1
    assert slots(2 * least) == 1
    with pytest.raises(NotEnoughMemory):
        slots(least)


def test_a_share_that_is_given_is_filled() -> None:
    """Up to every session: nine sequences of 2,048 tokens fit into 200 kB, for four turns."""
    found = plan(spec(), memory(free=400_000), memory_fraction=0.5)

    assert found.num_slots == (200_000 - SLOT - PAGE * TOKEN) // (SLOT + USUAL) == 9
    assert found.slots_bytes + found.pages_bytes <= 200_000


def test_what_sessions_can_not_use_goes_to_longer_ones() -> None:
    """Four turns and one session: the memory is for tokens then, as many as the model takes."""
    found = plan(spec(), memory(), memory_bytes=150_000, max_sessions=1)

    assert found.num_slots == 5
    assert 5 * 128 < found.num_pages < 5 * 256
    assert 150_000 - PAGE * TOKEN < found.slots_bytes + found.pages_bytes <= 150_000
    assert plan(spec(), memory(), memory_bytes=10**9, max_sessions=1).num_pages == 5 * 256


def test_a_number_of_bytes_holds_weights_and_temporaries_too() -> None:
    """What an operator gives the engine is all that it takes."""
    found = plan(spec(), memory(weights=50_000, step=10_000), memory_bytes="150kB")

    assert found.budget_bytes == 90_000
    assert found.total_bytes <= 150_000
    assert found.num_slots == 4


def test_a_model_of_attention_only_has_no_slot_to_pay_for() -> None:
    found = plan(spec(slots=False), memory(free=1_000_000), memory_fraction=1.0)

    assert (found.num_slots, found.slots_bytes) == (0, 0)
    assert found.num_pages == (1_000_000 - PAGE * TOKEN) // (PAGE * TOKEN)


def test_a_recurrent_model_has_no_page_to_pay_for() -> None:
    """And its largest turn is as long as the model allows, whatever memory there is."""
    found = plan(spec(pages=False), memory(free=100_000), memory_fraction=1.0)

    assert (found.num_pages, found.pages_bytes) == (0, 0)
    assert found.num_slots == 99
    assert found.largest_turn == 4096


@pytest.mark.parametrize("tokens", [2, 15, 16, 17, 2048])
def test_a_sequence_has_whole_pages(tokens: int) -> None:
    found = plan(spec(max_model_len=tokens), memory(free=10**9))

    assert found.num_pages == 8 * -(-tokens // PAGE)


def test_a_length_that_is_given_has_room_before_a_second_sequence() -> None:
    """One turn of 4,096 tokens rather than four of 2,048 that nobody asked for."""
    found = plan(spec(), memory(free=10**9), max_model_len=4096, max_num_seqs=1, max_sessions=1)
    assert (found.num_slots, found.num_pages) == (2, 256)

    tight = SLOT * 3 + 4096 * TOKEN + PAGE * TOKEN
    found = plan(spec(), memory(), memory_bytes=tight, max_model_len=4096)
    assert (found.num_slots, found.num_pages, found.largest_turn) == (2, 256, 4096)


def test_a_count_that_is_given_wins_and_the_other_is_what_is_left() -> None:
    found = plan(spec(), memory(free=100_000), num_slots=2)
    left = 80_000 - 3 * SLOT - PAGE * TOKEN
    assert (found.num_slots, found.num_pages) == (2, left // USUAL * 128)

    found = plan(spec(), memory(free=100_000), num_pages=100)
    assert (found.num_slots, found.num_pages) == (8, 100)

    assert plan(spec(), memory(free=100_000), num_slots=40, num_pages=7).num_slots == 40


REFUSED: dict[str, tuple[dict[str, Any], DeviceMemory, tuple[str, ...]]] = {
    "one turn doesn't fit": (
        {},
        memory(free=20_000, weights=7_000_000, step=2_048),
        (
            "13.6 KiB are left for slots and pages beside weights of 6.68 MiB and temporaries of",
            "a slot of 1000 B and 128 pages of 160 B (one more of each",
            "for a turn of 2048 tokens and take 22.1 KiB; raise memory_bytes",
        ),
    ),
    "a long turn doesn't fit": (
        {"max_model_len": 4096, "memory_bytes": 30_000},
        memory(),
        ("29.3 KiB are left", "a turn of 4096 tokens and take 42.1 KiB", "256 pages"),
    ),
    "the weights alone are more": (
        {"memory_bytes": "1MB"},
        memory(weights=2_000_000),
        ("0 B are left", "weights of 1.91 MiB"),
    ),
    "counts that were given": (
        {"num_slots": 200, "num_pages": 10},
        memory(free=100_000),
        ("200 slots of 1000 B and 10 pages of 160 B", "take 198 KiB; lower num_slots or num_pages"),
    ),
    "counts in the bytes that were given": (
        {"num_slots": 20, "num_pages": 10, "memory_bytes": 10_000},
        memory(free=10**9),
        ("20 slots of 1000 B and 10 pages", "take 22.2 KiB"),
    ),
    "slots that leave no room for pages": (
        {"num_slots": 70, "memory_fraction": 0.8},
        memory(free=100_000),
        ("70 slots of 1000 B and 128 pages of 160 B", "take 89.5 KiB; lower num_slots or leave"),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_plan_that_can_not_hold_one_turn_is_refused_with_the_numbers(name: str) -> None:
    """Before anything is allocated; the message says what there is, what is needed, the way out."""
    options, there, told = REFUSED[name]
    with pytest.raises(NotEnoughMemory) as caught:
        plan(spec(), there, **options)

    assert all(part in str(caught.value) for part in told), str(caught.value)
    assert caught.value.needed_bytes > caught.value.available_bytes


def test_the_least_that_is_accepted_is_what_the_refusal_says() -> None:
    """To the byte."""
    with pytest.raises(NotEnoughMemory) as caught:
        plan(spec(), memory(weights=500, step=70), memory_bytes=10_000)
    least = caught.value.needed_bytes + 570

    assert plan(spec(), memory(weights=500, step=70), memory_bytes=least).num_slots == 1
    with pytest.raises(NotEnoughMemory):
        plan(spec(), memory(weights=500, step=70), memory_bytes=least - 1)


@given(
    free=st.integers(0, 600_000),
    step=st.integers(0, 5_000),
    slots=st.booleans(),
    pages=st.booleans(),
    options=st.fixed_dictionaries(
        {},
        optional={
            "memory_fraction": st.floats(0.1, 1.0),
            "max_num_seqs": st.integers(1, 12),
            "max_sessions": st.integers(1, 30),
            "max_model_len": st.integers(2, 4096),
            "page_size": st.integers(1, 64),
            "num_slots": st.integers(1, 30),
            "num_pages": st.integers(1, 300),
        },
    ),
)
def test_a_plan_stays_within_its_memory_or_is_refused(
    free: int, step: int, slots: bool, pages: bool, options: dict[str, Any]
) -> None:
    """Whatever is given, whatever there is; and what is accepted runs at least one turn."""
    if not slots:
        options = {name: value for name, value in options.items() if name != "num_slots"}
    if not pages:
        options = {name: value for name, value in options.items() if name != "num_pages"}
    if not (slots or pages):
        return
    model = spec(slots=slots, pages=pages)
    try:
        found = plan(model, memory(free=free, step=step), **options)
    except NotEnoughMemory:
        return
    assert found.slots_bytes + found.pages_bytes + step <= free
    assert (found.num_slots > 0) == slots
    assert (found.num_pages > 0) == pages
    for name, count in (("num_slots", found.num_slots), ("num_pages", found.num_pages)):
        assert options.get(name, count) == count
    if "num_pages" not in options:
        assert found.largest_turn >= min(options.get("max_model_len", 2048), 4096)


def test_a_share_of_an_unknown_amount_is_refused() -> None:
    with pytest.raises(ValidationError, match="doesn't say how much memory is free"):
        plan(spec(), memory(free=None), memory_fraction=0.5)


@pytest.mark.parametrize(
    "given_options",
    [
        {"memory_fraction": 0},
        {"memory_fraction": 1.5},
        {"memory_fraction": "half"},
        {"memory_bytes": 0},
        {"memory_bytes": "8 potatoes"},
        {"memory_bytes": "-1GiB"},
        {"memory_bytes": True},
        {"memory_fraction": 0.5, "memory_bytes": 10},
    ],
    ids=str,
)
def test_a_bad_amount_of_memory_is_refused_and_named(given_options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        EngineConfig.from_dict(given_options)
    assert caught.value.parameter in given_options


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8GiB", 8 << 30),
        ("512 mb", 512 * 10**6),
        ("1.5K", 1500),
        ("7", 7),
        (9, 9),
        ("2TiB", 2 << 40),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str | int, size: int) -> None:
    assert parse_bytes("memory_bytes", text) == size


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1000 << 10, "1000 KiB"),
        (1536 << 20, "1.5 GiB"),
    ],
)
def test_sizes_are_written_in_three_digits(size: int, text: str) -> None:
    assert format_bytes(size) == text
