"""Tensors from a store to a model: converted, counted, hashed, and ended early."""

import gc
import os
import threading
import weakref
from pathlib import Path

import pytest
import torch
from torch import Tensor

from adapters.models import safetensors_store
from adapters.models.config_reader import ConfigReader
from adapters.models.directory import open_store
from adapters.models.errors import DamagedWeights
from adapters.models.precision import Precision
from adapters.models.registry import load_model
from adapters.models.store import MemoryStore
from adapters.models.stream import TensorStream
from kernel.loading import LoadProgress, OnProgress
from tests.models.open_files import LISTS_OPEN_FILES, open_weights
from tests.models.tiny import CONFIG, config_of, make_directory, make_weights

CPU = torch.device("cpu")
FLOAT32 = Precision(torch.float32, torch.float32, torch.float32)


@pytest.mark.parametrize("stored", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("runs_in", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_numbers_are_rounded_once(stored: torch.dtype, runs_in: torch.dtype) -> None:
    """From what is on disk to what the model runs in, without a type between the two."""
    tensor = torch.linspace(-3, 3, 30, dtype=torch.float64).to(stored).view(5, 6)
    target = torch.empty(5, 6, dtype=runs_in)
    TensorStream(MemoryStore({"a": tensor})).fill(target, "a")

    assert torch.equal(target, tensor.to(runs_in))


def test_a_part_of_a_joined_matrix_is_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pieces that end in the middle of a row."""
    monkeypatch.setattr(safetensors_store, "PIECE_BYTES", 20)
    store = open_store(make_directory(tmp_path))
    names = [f"model.layers.0.self_attn.{which}_proj.weight" for which in "qkv"]
    joined, begin = torch.full((33, 16), 9.0), 0
    for name in names:
        rows = store.tensors[name].shape[0]
        TensorStream(store).fill(joined[begin : begin + rows], name)
        begin += rows
    store.close()
    weights = make_weights(config_of())

    assert torch.equal(joined[:32], torch.cat([weights[name] for name in names]))
    assert torch.equal(joined[32], torch.full((16,), 9.0))


def watch(directory: Path, progress: OnProgress) -> None:
    store = open_store(directory)
    try:
        config = ConfigReader.load(directory)
        load_model(config, store, FLOAT32, CPU, progress=progress, with_fingerprint=True)
    finally:
        store.close()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_progress_begins_at_nothing_grows_and_ends_with_all(
    dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In bytes of the file, and never backwards: a bar that is drawn of it makes sense."""
    monkeypatch.setattr(safetensors_store, "PIECE_BYTES", 256)
    told: list[LoadProgress] = []
    watch(make_directory(tmp_path, dtype=dtype, shards=2), told.append)
    total = sum(tensor.nbytes for tensor in make_weights(CONFIG, dtype).values())

    assert {now.total_bytes for now in told} == {total}
    done = [now.done_bytes for now in told]
    assert done == sorted(done)
    assert (done[0], done[-2], done[-1]) == (0, total, total)
    assert (told[0].fraction, told[-1].fraction) == (0.0, 1.0)
    assert len({now.tensor for now in told}) > 10


class Stop(Exception):
    """What a caller's progress raises."""


class Kept(MemoryStore):
    """Remembers, weakly, what it gave out."""

    def __init__(self, weights: dict[str, Tensor]) -> None:
        super().__init__(weights)
        self.given: list[weakref.ref[Tensor]] = []

    def read(self, name: str, /) -> Tensor:
        tensor = super().read(name).clone()
        self.given.append(weakref.ref(tensor))
        return tensor


def test_what_progress_raises_ends_the_loading_and_leaves_nothing() -> None:
    """A caller's way to give up: no thread, no tensor of the half-loaded model."""
    before = set(threading.enumerate())
    store = Kept(make_weights(CONFIG))

    def stop(now: LoadProgress) -> None:
        if now.fraction > 0.5:
            raise Stop

    with pytest.raises(Stop) as kept:
        load_model(ConfigReader(CONFIG), store, FLOAT32, CPU, progress=stop, with_fingerprint=True)
    gc.collect()

    assert kept.value.__traceback__ is not None, "whoever keeps the error keeps its frames"
    assert 2 < len(store.given) < len(store.tensors)
    assert [tensor for tensor in store.given if tensor() is not None] == []
    assert set(threading.enumerate()) == before


@LISTS_OPEN_FILES
def test_a_file_that_is_cut_during_the_loading_leaves_nothing(tmp_path: Path) -> None:
    """Checked as a whole at first, damaged later: a typed error all the same."""
    directory = make_directory(tmp_path)
    path = directory / "model.safetensors"
    size = path.stat().st_size
    before = set(threading.enumerate())

    def cut(now: LoadProgress) -> None:
        if now.fraction > 0.3:
            os.truncate(path, size - 8)

    with pytest.raises(DamagedWeights, match="cut short while it was read"):
        watch(directory, cut)
    assert open_weights() == set()
    assert set(threading.enumerate()) == before
