"""Where pages say ``Engine.open()``: the bundled model, or a fake one in a checkout without it."""

from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from adapters.fake_device import open_fake
from kernel import Engine, EngineConfig, OpenedDevice
from tests.docs.markdown import ROOT

__all__ = ["HAS_BUNDLED_MODEL", "open_by_default"]

HAS_BUNDLED_MODEL = (ROOT / "adapters" / "models" / "bundled" / "model.safetensors").is_file()


def open_by_default(patch: pytest.MonkeyPatch) -> None:
    """Let ``Engine.open()`` find its device in a checkout that isn't installed, too.

    An installed package finds it by an entry point; what is opened is the same.
    """
    original = Engine.open

    def opened(
        config: EngineConfig | None = None, *, device: Any = None, **options: Any
    ) -> AbstractAsyncContextManager[Engine]:
        return original(config, device=_bundled() if device is None else device, **options)

    patch.setattr(Engine, "open", staticmethod(opened))


def _bundled() -> OpenedDevice:
    if not HAS_BUNDLED_MODEL:
        return open_fake(model="fake", device="fake", dtype="auto")
    from adapters.torch_device import open_torch

    return open_torch(model="bundled", device="cpu", dtype="auto")
