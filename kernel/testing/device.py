"""The device that the testing tools run on: any whose steps can be told to fail or to hang."""

from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Protocol, runtime_checkable

from kernel.engine.opening import DEVICES
from kernel.errors import ValidationError
from kernel.loading import no_progress
from kernel.step import Device, OpenedDevice

__all__ = ["FaultyDevice", "open_faulty_device"]


@runtime_checkable
class FaultyDevice(Device, Protocol):
    """A device with faults to order.

    It completes each step inside ``submit`` and each transfer inside ``transfer``; whoever tests
    puts its own ``deliver`` into the :class:`~kernel.environment.Environment` and decides when the
    kernel hears of it.
    """

    @property
    def poison_reads(self) -> Sequence[object]:
        """Reads of memory that held nothing; empty when the kernel is right."""
        ...

    def fail_next(self, why: str = ..., *, device_lost: bool = ...) -> None:
        """Let the next step to be submitted fail."""
        ...

    def fail_next_transfer(self, why: str = ..., *, device_lost: bool = ...) -> None:
        """Let the next transfer fail; what it would have written is undefined."""
        ...

    def hang_next(self) -> None:
        """Let the next step to be submitted wait for :meth:`unhang`."""
        ...

    def unhang(self) -> None:
        """Let every hanging step complete, however late."""
        ...


def open_faulty_device(model: str = "fake", *, name: str = "fake") -> OpenedDevice:
    """Open the device of that entry point; its steps can be told to fail.

    Args:
        model: what kind of model it plays: ``fake`` (hybrid), ``fake-recurrent`` or
            ``fake-attention``.
        name: the entry point in the group ``tenure.devices``.

    Raises:
        ValidationError: no such device is installed, or it can't be told to fail.
    """
    for entry in entry_points(group=DEVICES, name=name):
        opened: OpenedDevice = entry.load()(
            model=model, device=name, dtype="auto", state_dtype="auto", progress=no_progress
        )
        if isinstance(opened.device, FaultyDevice):
            return opened
    raise ValidationError(
        parameter="device", value=name, why="no installed device of that name can be told to fail"
    )
