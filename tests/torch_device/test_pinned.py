"""Host memory for an accelerator fits into what is free, though torch pins more than was asked."""

import attrs
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.torch_device import memory
from adapters.torch_device.memory import device_memory
from adapters.torch_device.pinned import pinnable_bytes
from kernel import EngineConfig, NotEnoughMemory
from kernel.config import plan_pools
from kernel.memory.plan import MemoryPlan
from kernel.step import ModelSpec

GIB = 1 << 30
CUDA = torch.device("cuda")
MODEL = ModelSpec(
    name="hybrid",
    vocab_size=100,
    max_model_len=4096,
    eos_token_ids=(0,),
    uses_slots=True,
    uses_pages=True,
    slot_bytes=3 << 20,
    page_token_bytes=24 << 10,
)


def pinned_bytes(array_bytes: int) -> int:
    """What torch's allocator takes for an array, as it is by default."""
    return 1 << (array_bytes - 1).bit_length() if array_bytes else 0


@pytest.mark.parametrize(
    ("asked", "taken"), [(0, 0), (1, 1), (3, 4), (4, 4), (5 * GIB, 8 * GIB), (8 * GIB, 8 * GIB)]
)
def test_a_pinned_array_takes_the_next_power_of_two(asked: int, taken: int) -> None:
    assert pinned_bytes(asked) == taken


@given(
    st.integers(0, 1 << 42),
    st.lists(st.integers(1, 1000), min_size=1, max_size=5),
    st.integers(0, 1000),
)
@settings(max_examples=200)
def test_whatever_the_arrays_are_they_fit_once_they_are_pinned(
    free: int, shares: list[int], spare: int
) -> None:
    """States of several kinds, keys and values: each is rounded up for itself."""
    budget = pinnable_bytes(free, {})
    arrays = [budget * share // (sum(shares) + spare) for share in shares]

    assert sum(arrays) <= budget
    assert sum(map(pinned_bytes, arrays)) <= free


@pytest.mark.parametrize("name", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_where_torch_was_told_not_to_round_all_that_is_free_counts(name: str) -> None:
    """The way out for whoever wants more than half."""
    told = {name: "expandable_segments:True,pinned_max_round_threshold_mb:1"}

    assert pinnable_bytes(10 * GIB, told) == 10 * GIB
    assert pinnable_bytes(10 * GIB, {name: "expandable_segments:True"}) == 5 * GIB


def plan(host_memory: str | None) -> MemoryPlan:
    config = EngineConfig(max_num_seqs=8, max_sessions=10_000, host_memory_bytes=host_memory)
    return plan_pools(config, MODEL, device_memory(CUDA, 20 * GIB, GIB, GIB))


@pytest.fixture(autouse=True)
def ten_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with ten gibibytes, whose torch rounds."""

    def free(_device: torch.device) -> int:
        return 10 * GIB

    monkeypatch.setattr(memory, "free_memory", free)
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)


def test_a_plan_for_an_accelerator_asks_for_no_more_than_can_be_pinned() -> None:
    """Keys and values are halves of the pages, the states an array beside them."""
    found = plan("5GiB")
    pages = found.host_pages * found.page_bytes

    assert 4 * GIB < found.host_bytes <= 5 * GIB
    pinned = pinned_bytes(found.host_slots * found.slot_bytes) + 2 * pinned_bytes(pages // 2)
    assert found.host_bytes < pinned <= 10 * GIB
    with pytest.raises(NotEnoughMemory, match="5 GiB of the host's memory can be had"):
        plan("6GiB")
    assert plan(None).host_bytes <= 10 * GIB // 16


def test_a_processors_host_memory_is_not_pinned() -> None:
    """All that is free counts, less what its own pools take."""
    found = attrs.asdict(device_memory(torch.device("cpu"), 10 * GIB, GIB, GIB))

    assert found["host_free_bytes"] == 10 * GIB
