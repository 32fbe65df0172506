"""The devices that the main scenarios run on: the fake one, and the bundled model in float64."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import adapters
from kernel.step import OpenedDevice
from tests.scenarios.stage import DeviceFactory, open_fake

if TYPE_CHECKING:
    import torch

    from adapters.models.config_reader import ConfigReader
    from adapters.models.decoder import CausalModel
    from adapters.models.loader import Asked
    from adapters.models.precision import Precision
    from adapters.models.store import TensorStore
    from adapters.ragged.spec import ModelShape

_WEIGHTS = Path(adapters.__file__).parent / "models" / "bundled" / "model.safetensors"


_loaded: "dict[torch.dtype, tuple[CausalModel, Asked]]" = {}


def _load_model(
    config: "ConfigReader",
    store: "TensorStore",
    precision: "Precision",
    device: "torch.device",
    *,
    checked: "Callable[[ModelShape, Asked], None]",
    **options: Any,
) -> "tuple[CausalModel, Asked]":
    """Read the model once; its tensors aren't written, so devices may share them."""
    found = _loaded.get(precision.weights)
    if found is None:
        from adapters.models.registry import load_model

        found = load_model(config, store, precision, device, checked=checked, **options)
        _loaded[precision.weights] = found
    else:
        checked(found[0].shape, found[1])
    return found


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
    monkeypatch.setattr("adapters.torch_device.factory.load_model", _load_model)
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
