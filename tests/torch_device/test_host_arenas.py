"""Host memory of a torch device: of the planned size, not touched before it is used."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from torch import Tensor

from adapters.ragged.arenas import Arenas
from adapters.torch_device import TorchDevice
from adapters.torch_device.planning import plan_model
from kernel import Engine, EngineConfig
from kernel.step import DeviceLimits
from ownership import Place
from tests.torch_device.moving import FAMILIES, Mover, random_weights


def tensors(arenas: Arenas | None) -> Iterator[Tensor]:
    if arenas is not None:
        yield from arenas.states.tensors.values()
        yield from (arenas.pages.keys, arenas.pages.values)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_planned_bytes_of_the_host_are_the_allocated_ones(anyio_backend: str) -> None:
    """Of the bundled hybrid; there is no padding, since nothing is computed there."""
    config = EngineConfig(max_num_seqs=2, num_slots=3, num_pages=40, host_memory_bytes="8MiB")
    plan = plan_model(config).plan
    async with Engine.open(config) as engine:
        device = engine.core.device
        assert isinstance(device, TorchDevice)
        allocated = sum(tensor.nbytes for tensor in tensors(device.arenas.host))
        limits = engine.core.limits

    assert allocated == plan.host_bytes
    assert (limits.host_slots, limits.host_pages) == (plan.host_slots, plan.host_pages)
    assert 7 << 20 < allocated <= 8 << 20


@pytest.mark.parametrize("family", FAMILIES)
def test_a_slot_of_the_host_is_one_piece_of_memory(family: str) -> None:
    """So a copy from an accelerator is one, and memory is touched for what is there alone."""
    host = Mover(family).arenas.at(Place.HOST)

    for tensor in tensors(host):
        assert not tensor.shape[0] or tensor[:, 1].is_contiguous()


def test_host_memory_is_not_touched_before_it_is_used() -> None:
    """An engine that parks nothing pays for nothing."""
    device = TorchDevice.of_weights(
        FAMILIES["mamba2"], random_weights("mamba2"), dtype="float32", num_threads=1
    )
    before = resident_bytes()
    device.allocate(DeviceLimits(2, 0, 16, 2, 8, host_slots=100_000))
    size = sum(tensor.nbytes for tensor in tensors(device.arenas.host))

    assert size == 100_000 * device.model.slot_bytes > 200 << 20
    assert resident_bytes() - before < size // 8
    device.close()


def resident_bytes() -> int:
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("only Linux tells how much of a process is in memory")
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def test_without_host_memory_there_is_no_place_to_copy_to() -> None:
    """The ledger would never ask."""
    arenas = Mover("mamba2").arenas
    bare = Arenas(arenas.states, arenas.pages)

    assert bare.at(Place.DEVICE) is bare
    with pytest.raises(ValueError, match="no memory in place 'host'"):
        bare.at(Place.HOST)
    with pytest.raises(ValueError, match="'file'"):
        arenas.at(Place.FILE)


def test_pages_that_follow_each_other_are_all_copied() -> None:
    """In stretches of any length, in any order, and nothing beside them."""
    arenas = Mover("attention only").arenas
    assert arenas.host is not None
    pages, host = arenas.pages, arenas.host.pages
    pairs = [(9, 1), (2, 5), (1, 4), (4, 7), (3, 6), (12, 20), (11, 2), (10, 9)]
    for source, _ in pairs:
        pages.fill([source], float(source))

    host.copy_all(pairs, pages)

    targets = {target: source for source, target in pairs}
    for page in range(host.keys.shape[1]):
        for tensor in (host.keys, host.values):
            copied = (tensor[:, page] == float(targets.get(page, -1))).all()
            assert copied if page in targets else tensor[:, page].isnan().all(), page
