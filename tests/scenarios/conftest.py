"""The devices that the main scenarios run on: the fake one, and the bundled model in float64."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import adapters
from kernel.step import OpenedDevice
from tests.scenarios.stage import DeviceFactory, open_fake

if TYPE_CHECKING:
    import torch

    from adapters.models.hybrid import HybridConfig

_WEIGHTS = Path(adapters.__file__).parent / "models" / "bundled" / "model.safetensors"


@cache
def _load_once(
    directory: Path, dtype: "torch.dtype"
) -> "tuple[HybridConfig, Mapping[str, torch.Tensor]]":
    from adapters.models.weights import load_weights

    return load_weights(directory, dtype=dtype)


def _load_weights(
    directory: Path, *, dtype: "torch.dtype"
) -> "tuple[HybridConfig, Mapping[str, torch.Tensor]]":
    return _load_once(directory, dtype)


def _open_bundled() -> OpenedDevice:
    from adapters.torch_device import open_torch

    # In float64 no two candidates are so close that the size of a batch could turn them round.
    return open_torch(model="bundled", device="cpu", dtype="float64")


@pytest.fixture(params=["fake", "bundled"])
def opened_device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> DeviceFactory:
    """Open a fresh device on each call."""
    if request.param == "fake":
        return open_fake
    if not _WEIGHTS.exists():
        pytest.skip("the bundled model has not been trained yet")
    # Reading weights and measuring threads would cost more than the scenarios do.
    monkeypatch.setenv("TENURE_TORCH_THREADS", "1")
    monkeypatch.setattr("adapters.torch_device.factory.load_weights", _load_weights)
    return _open_bundled


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the bundled model more time: the first of its tests imports torch."""
    for item in items:
        if (
            isinstance(item, pytest.Function)
            and hasattr(item, "callspec")
            and (item.callspec.params.get("opened_device") == "bundled")
        ):
            item.add_marker(pytest.mark.timeout(90))
