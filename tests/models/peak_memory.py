"""Peak memory and time of loading: ``python -m tests.models.peak_memory [--megabytes 500]``.

Writes random weights, loads each case in a process of its own, by Tenure and by ``transformers``,
and prints the highest resident memory above what the process had before, divided by the size of
the model in the type that it runs in. Exit code 1 if Tenure's is 1.3 or more.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import click
import torch

from tests.models.tiny import make_directory

__all__ = ["BOUND", "Measured", "main", "measure", "write_model"]

BOUND = 1.3
_MODULE = "tests.models.peak_memory"
CASES: tuple[tuple[str, str, int], ...] = (
    ("float32", "float32", 1),
    ("float32", "float32", 5),
    ("bfloat16", "float32", 1),
    ("bfloat16", "float32", 5),
    ("bfloat16", "bfloat16", 1),
    ("bfloat16", "bfloat16", 5),
)
"""Type on disk, type of the run, files."""


@attrs.frozen
class Measured:
    """Of one loading."""

    model_bytes: int
    peak_bytes: int
    """Resident, above what the process had before."""
    seconds: float

    @property
    def ratio(self) -> float:
        return self.peak_bytes / self.model_bytes


def _resident(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def _load_here(who: str, directory: str, dtype: str) -> Measured:
    load = _transformers if who == "transformers" else _tenure
    finish = load()
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark begins here
    before = _resident("VmRSS:")
    start = time.perf_counter()
    model_bytes = finish(directory, dtype)
    seconds = time.perf_counter() - start
    return Measured(model_bytes, _resident("VmHWM:") - before, seconds)


def _tenure() -> Callable[[str, str], int]:
    from adapters.torch_device import open_torch
    from kernel.step import OpenedDevice

    kept: list[OpenedDevice] = []

    def load(directory: str, dtype: str) -> int:
        kept.append(open_torch(model=directory, device="cpu", dtype=dtype))
        memory = kept[0].memory
        assert memory is not None
        return memory(1, 1, 1).weights_bytes

    return load


def _transformers() -> Callable[[str, str], int]:
    transformers: Any = importlib.import_module("transformers")
    transformers.utils.logging.disable_progress_bar()
    kept: list[torch.nn.Module] = []
    peer = transformers.LlamaForCausalLM

    def load(directory: str, dtype: str) -> int:
        kept.append(peer.from_pretrained(directory, dtype=getattr(torch, dtype)))
        return sum(parameter.nbytes for parameter in kept[0].parameters())

    return load


def measure(who: str, directory: Path, dtype: str) -> Measured:
    """Load a directory in a new process."""
    command = [sys.executable, "-m", _MODULE, "--load", who, str(directory), dtype]
    done = subprocess.run(
        command,
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def write_model(directory: Path, stored: str, dtype: str, shards: int, megabytes: int) -> Path:
    """Random weights of so many megabytes when they run in ``dtype``."""
    each = (4 * 1024 * 1024 + 3 * 1024 * 2816) * getattr(torch, dtype).itemsize
    return make_directory(
        directory,
        dtype=getattr(torch, stored),
        shards=shards,
        vocab_size=8192,
        hidden_size=1024,
        intermediate_size=2816,
        num_attention_heads=16,
        num_key_value_heads=16,
        num_hidden_layers=max(1, round(megabytes * 1e6 / each) - 1),
    )


def main() -> int:
    """Print a table; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=500, help="of the model as it runs")
    parser.add_argument("--load", nargs=3, metavar=("WHO", "DIRECTORY", "DTYPE"))
    given = parser.parse_args()
    if given.load:
        click.echo(json.dumps(attrs.asdict(_load_here(*given.load))))
        return 0
    click.echo(
        f"{'on disk':>10} {'runs in':>10} {'files':>5} {'MB':>6}   Tenure        transformers"
    )
    worst = 0.0
    for stored, dtype, shards in CASES:
        with tempfile.TemporaryDirectory() as place:
            directory = write_model(Path(place), stored, dtype, shards, given.megabytes)
            ours, theirs = (measure(who, directory, dtype) for who in ("tenure", "transformers"))
        worst = max(worst, ours.ratio)
        click.echo(
            f"{stored:>10} {dtype:>10} {shards:>5} {ours.model_bytes / 1e6:>6.0f}"
            f"   {ours.ratio:.3f} {ours.seconds:5.2f} s"
            f"   {theirs.ratio:.3f} {theirs.seconds:5.2f} s"
        )
    click.echo(f"worst {worst:.3f}, bound {BOUND}")
    return worst >= BOUND


if __name__ == "__main__":
    sys.exit(main())
