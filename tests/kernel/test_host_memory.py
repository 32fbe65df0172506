"""How much host memory an engine gets for states that the device has no room for."""

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.fake_device import FakeDevice
from kernel.config import EngineConfig, plan_pools, resolve
from kernel.engine.core import Core
from kernel.environment import Environment
from kernel.errors import NotEnoughMemory, ValidationError
from kernel.memory.device import DeviceMemory
from kernel.memory.plan import MemoryPlan
from kernel.probe import NullProbe
from ownership import Capacity
from tests.kernel.test_memory_plan import PAGE, SLOT, TOKEN, spec
from tests.kernel.toys import Clock

PAGE_BYTES = PAGE * TOKEN


def memory(host_free: int | None, *, is_host: bool = False) -> DeviceMemory:
    free = host_free if is_host else 10**12
    return DeviceMemory(
        free_bytes=free,
        weights_bytes=0,
        step_bytes=0,
        host_free_bytes=host_free,
        is_host=is_host,
    )


def plan(there: DeviceMemory | None, kind: str = "hybrid", **options: Any) -> MemoryPlan:
    model = spec(slots=kind != "attention", pages=kind != "recurrent")
    return plan_pools(EngineConfig.from_dict({"max_num_seqs": 4, **options}), model, there)


@pytest.mark.parametrize("kind", ["hybrid", "recurrent", "attention"])
def test_without_a_word_the_host_holds_as_much_as_the_device(kind: str) -> None:
    """A state at rest beside each that is on the device."""
    found = plan(memory(10**12), kind)

    assert (found.host_slots, found.host_pages) == (found.num_slots, found.num_pages)
    assert found.host_bytes == found.num_slots * found.slot_bytes + found.num_pages * PAGE_BYTES * (
        kind != "recurrent"
    )


def test_without_a_word_it_takes_at_most_an_eighth_of_what_is_free() -> None:
    """In the proportion of the device's pools, so that slots and pages run out together."""
    found = plan(memory(8 * 50_000))

    assert (found.num_slots, found.num_pages) == (8, 8 * 128)
    assert (found.host_slots, found.host_pages) == (2, (50_000 - 2 * SLOT) // PAGE_BYTES)
    assert found.host_bytes <= 50_000


def test_what_the_device_takes_of_the_hosts_own_memory_is_not_free_for_it() -> None:
    """A processor's pools lie in the same memory."""
    apart = plan(memory(200_000), num_slots=8, num_pages=1024)
    together = plan(memory(200_000, is_host=True), num_slots=8, num_pages=1024)
    left = 200_000 - together.slots_bytes - together.pages_bytes

    assert together.host_bytes <= left // 8 < apart.host_bytes


@pytest.mark.parametrize("there", [None, memory(None)], ids=["no word", "no number"])
def test_where_nobody_knows_what_is_free_there_is_none_unless_asked(
    there: DeviceMemory | None,
) -> None:
    assert plan(there).host_bytes == 0
    assert plan(there, host_memory_bytes=10**6).host_bytes > 0


def test_none_is_none() -> None:
    """Also as a text."""
    for nothing in (0, "0", "0GiB"):
        found = plan(memory(10**12), host_memory_bytes=nothing)
        assert (found.host_slots, found.host_pages, found.host_bytes) == (0, 0, 0)


def test_what_is_asked_for_is_filled_up_to_every_sequence_there_may_be() -> None:
    """More would stay empty for ever."""
    few = plan(memory(10**12), host_memory_bytes="1MB", max_sessions=1000)
    all_of_them = plan(memory(10**12), host_memory_bytes="100GB", max_sessions=1000)

    assert few.host_bytes <= 10**6 < few.host_bytes + SLOT + 128 * PAGE_BYTES
    assert all_of_them.host_slots == 1004
    assert all_of_them.host_pages == 1004 * 4096 // PAGE


@given(
    kind=st.sampled_from(["hybrid", "recurrent", "attention"]),
    asked=st.integers(SLOT + PAGE_BYTES, 10**7),
    slots=st.integers(1, 40),
    pages=st.integers(1, 400),
)
def test_never_more_than_what_was_asked_for_and_one_of_each_at_least(
    kind: str, asked: int, slots: int, pages: int
) -> None:
    """Whatever the device's own proportion is."""
    own = {"num_slots": slots, "num_pages": pages}
    own.pop({"recurrent": "num_pages", "attention": "num_slots"}.get(kind, ""), None)
    found = plan(None, kind, host_memory_bytes=asked, **own)

    assert found.host_bytes <= asked
    assert (found.host_slots > 0, found.host_pages > 0) == (
        kind != "attention",
        kind != "recurrent",
    )


def test_more_than_is_free_is_refused_with_the_numbers() -> None:
    """Before anything is allocated."""
    with pytest.raises(NotEnoughMemory, match="host_memory_bytes is 2 KiB, and 1 KiB") as refused:
        plan(memory(1024), host_memory_bytes=2048)

    assert (refused.value.needed_bytes, refused.value.available_bytes) == (2048, 1024)


def test_less_than_one_state_is_refused_with_the_way_out() -> None:
    with pytest.raises(ValidationError, match=r"host_memory_bytes=1001.*1\.13 KiB; use 0 for none"):
        plan(None, host_memory_bytes=1001)
    assert plan(None, "recurrent", host_memory_bytes=1001).host_slots == 1


@pytest.mark.parametrize("wrong", [-1, "some", 1.5, True])
def test_what_is_no_size_is_refused_by_name(wrong: object) -> None:
    with pytest.raises(ValidationError, match="host_memory_bytes"):
        EngineConfig.from_dict({"host_memory_bytes": wrong})


def test_the_device_and_the_ledger_get_what_was_planned() -> None:
    """Of one and the same size."""
    device = FakeDevice()
    config = EngineConfig(
        num_slots=2, num_pages=6, page_size=4, max_model_len=16, host_memory_bytes=4 * 8 + 12 * 32
    )
    limits = resolve(config, device.model)
    core = Core(config, device, Environment(clock=Clock()), NullProbe())

    assert (limits.host_slots, limits.host_pages) == (4, 12)
    assert (core.limits.host_slots, core.limits.host_pages) == (4, 12)
    assert core.ledger.view.host_capacity == Capacity(4, 12, 4)
    assert len(device.arenas.host.slots) == 4
    none = Core(attrs.evolve(config, host_memory_bytes=0), FakeDevice(), Environment(), NullProbe())
    assert none.ledger.view.host_capacity is None
