"""Models whose state takes at most 256 bytes, for runs that are about the number of sessions."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from kernel import EngineConfig
from kernel.session_store import SyncPolicy
from kernel.step import Device

__all__ = ["SMALL_MODELS", "config_for", "open_small"]

RESIDENT: Final = 16
"""Sessions that stay in memory."""
_ROWS: Final = 64


def _open_fake() -> Device:
    from adapters.fake_device import FakeDevice  # noqa: PLC0415 - each is loaded when asked for

    return FakeDevice(uses_pages=False, name="fake-recurrent")


def _open_tiny() -> Device:
    import torch  # noqa: PLC0415 - the fake device needs none of it

    from adapters.models.hybrid import HybridConfig  # noqa: PLC0415
    from adapters.models.weights import random_weights  # noqa: PLC0415
    from adapters.torch_device import TorchDevice  # noqa: PLC0415

    config = HybridConfig(
        vocab_size=256,
        hidden_size=8,
        layer_types=("mamba2",),
        expand=1,
        state_size=2,
        head_dim=4,
        conv_kernel=2,
        max_model_len=4096,
        name="tiny-recurrent",
    )
    weights = random_weights(config, 0, torch.float32)
    return TorchDevice.of_weights(
        config.to_dict(), weights, dtype="float32", device="cpu", num_threads=1
    )


SMALL_MODELS: Final[dict[str, Callable[[], Device]]] = {"fake": _open_fake, "tiny": _open_tiny}
"""``fake``: the fake device, a state of 8 bytes. ``tiny``: a random Mamba-2 layer on torch."""


def open_small(name: str) -> Device:
    """One of :data:`SMALL_MODELS`."""
    return SMALL_MODELS[name]()


def config_for(store: Path, sync: SyncPolicy) -> EngineConfig:
    """An engine that leaves all but a few sessions to the store; host memory keeps no state."""
    return EngineConfig(
        max_num_seqs=_ROWS,
        num_slots=2 * _ROWS,
        host_memory_bytes=0,
        max_resident_sessions=RESIDENT,
        session_store=str(store),
        session_store_sync=sync,
        log_events=False,
    )
