"""What a step's temporaries take: ``python -m tests.torch_device.step_memory [MODEL]``.

Runs large steps on a model and prints the highest resident memory above what was there before,
beside what the memory plan counts for it. Exit code 1 if a step took more.
"""

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import torch

from adapters.torch_device import TorchDevice, open_torch
from kernel.memory.byte_sizes import format_bytes
from kernel.step import DeviceLimits, DeviceStep, RowSampling, StepRow
from ownership import NO_SLOT, PageIndex, SlotIndex

__all__ = ["main", "measured_steps"]

_PAGE = 16
_DRAWN = RowSampling(temperature=0.8, top_k=40, top_p=0.95, key=7, index=0)
SHAPES: tuple[tuple[int, int, int], ...] = ((1, 512, 0), (64, 8, 0), (64, 1, 1000), (8, 64, 900))
"""Rows, tokens of each, tokens that each has absorbed before."""


def _resident(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def _step(device: TorchDevice, rows: int, tokens: int, before: int) -> DeviceStep:
    each = -(-(before + tokens) // _PAGE)
    return DeviceStep(
        step=0,
        rows=[
            StepRow(
                slot=SlotIndex(row) if device.model.uses_slots else NO_SLOT,
                initial="kept",
                position=before,
                tokens=[5] * tokens,
                pages=[PageIndex(row * each + page) for page in range(each)],
                tail_copy=None,
                sampling=_DRAWN,
            )
            for row in range(rows)
        ],
    )


def measured_steps(model: str) -> Iterator[tuple[tuple[int, int, int], int, int]]:
    """Shape, bytes that the step took at most, and bytes that the plan counts for it."""
    opened = open_torch(model=model, device="cpu", dtype="auto")
    device, ask = opened.device, opened.memory
    assert isinstance(device, TorchDevice)
    assert ask is not None
    device.allocate(DeviceLimits(64, 64 * 64, _PAGE, 64, 512))
    runner = device.runner()
    runner.run(_step(device, 1, 1, 0))
    for rows, tokens, before in SHAPES:
        step = _step(device, rows, tokens, before)
        ctypes.CDLL(None).malloc_trim(0)  # what earlier steps freed would hide what this one takes
        Path("/proc/self/clear_refs").write_text("5")  # the high-water mark begins here
        resident = _resident("VmRSS:")
        runner.run(step)
        taken = _resident("VmHWM:") - resident
        yield (rows, tokens, before), taken, ask(rows, rows * tokens, before + tokens).step_bytes


def main() -> int:
    """Print a table; see the module's docstring."""
    torch.set_num_threads(1)
    model = sys.argv[1] if len(sys.argv) > 1 else "bundled"
    exceeded = False
    for (rows, tokens, before), taken, counted in measured_steps(model):
        click.echo(
            f"{rows:>3} rows of {tokens:>3} tokens after {before:>4}: took {format_bytes(taken)},"
            f" counted {format_bytes(counted)}"
        )
        exceeded |= taken > counted
    return exceeded


if __name__ == "__main__":
    sys.exit(main())
