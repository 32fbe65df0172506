"""The devices that the main scenarios run on: the fake one, and the bundled model in float64."""

from functools import partial
from pathlib import Path

import pytest

import adapters
from kernel.step import OpenedDevice
from tests.scenarios.stage import DeviceFactory, open_fake

_WEIGHTS = Path(adapters.__file__).parent / "models" / "bundled" / "model.safetensors"


def _open_bundled() -> OpenedDevice:
    from adapters.torch_device import open_torch

    # In float64 no two candidates are so close that the size of a batch could turn them round.
    return open_torch(model="bundled", device="cpu", dtype="float64")


@pytest.fixture(params=["fake", "bundled"])
def opened_device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> DeviceFactory:
    """Open a fresh device on each call."""
    if request.param == "fake":
        return partial(open_fake)
    if not _WEIGHTS.exists():
        pytest.skip("the bundled model has not been trained yet")
    # Two cores are shared with the event loop: measuring threads would cost more than the turns.
    monkeypatch.setenv("TENURE_TORCH_THREADS", "1")
    return _open_bundled
