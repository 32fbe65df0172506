"""Safetensors files read by our own maps: what the library reads, and nothing of a damaged file."""

import gc
import json
import os
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from adapters.models import safetensors_store
from adapters.models.errors import (
    AmbiguousTensor,
    DamagedWeights,
    MissingTensor,
    MistypedTensor,
    WeightsError,
)
from adapters.models.safetensors_store import SafetensorsStore
from adapters.models.store import TORCH_NAMES, MemoryStore, pieces
from tests.models.open_files import LISTS_OPEN_FILES, open_weights
from tests.models.tiny import write_tensors

TENSORS = {
    "matrix": torch.arange(12, dtype=torch.float32).view(3, 4),
    "half": torch.arange(7, dtype=torch.float16),
    "brain": torch.arange(5, dtype=torch.bfloat16).view(5, 1),
    "double": torch.arange(3, dtype=torch.float64),
    "scalar": torch.tensor(2.5),
    "nothing": torch.empty(0, 4),
    "bytes": torch.arange(3, dtype=torch.uint8),
}


def file_of(directory: Path, tensors: dict[str, Tensor], name: str = "a.safetensors") -> Path:
    return write_tensors(directory / name, tensors)


def test_facts_and_numbers_are_those_of_the_library(tmp_path: Path) -> None:
    """Every type, a scalar, a tensor without numbers."""
    store = SafetensorsStore([file_of(tmp_path, TENSORS)])

    assert set(store.tensors) == set(TENSORS)
    for name, tensor in TENSORS.items():
        facts = store.tensors[name]
        assert facts.shape == tuple(tensor.shape)
        assert facts.dtype == TORCH_NAMES[tensor.dtype]
        assert facts.num_bytes == tensor.nbytes
        read = store.read(name)
        assert read.dtype == tensor.dtype
        assert torch.equal(read, tensor)
    assert MemoryStore(TENSORS).tensors == store.tensors
    store.close()


def test_pieces_joined_are_the_tensor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a piece begins in the middle of a page of memory."""
    monkeypatch.setattr(safetensors_store, "PIECE_BYTES", 16)
    store = SafetensorsStore([file_of(tmp_path, TENSORS)])
    for name, tensor in TENSORS.items():
        parts = list(pieces(store, name))
        assert all(part.nbytes <= 16 for part in parts)
        assert torch.equal(torch.cat([tensor.reshape(-1)[:0], *parts]), tensor.reshape(-1))
    store.close()


def test_a_tensor_that_is_written_into_leaves_the_file_alone(tmp_path: Path) -> None:
    """A map is private: torch has no tensors that can't be written."""
    path = file_of(tmp_path, TENSORS)
    before = path.read_bytes()
    store = SafetensorsStore([path])
    store.read("matrix").zero_()

    assert path.read_bytes() == before
    store.close()


def test_a_tensor_outlives_its_store(tmp_path: Path) -> None:
    """Its map is its own; only new reads are refused."""
    store = SafetensorsStore([file_of(tmp_path, TENSORS)])
    read = store.read("matrix")
    store.close()
    store.close()

    assert torch.equal(read, TENSORS["matrix"])
    with pytest.raises(MissingTensor, match="or are closed"):
        store.read("matrix")


def test_a_file_that_takes_the_place_of_another_is_not_read(tmp_path: Path) -> None:
    """What was checked is what is read: a download that ends meanwhile replaces the name only."""
    path = file_of(tmp_path, {"a": torch.zeros(4)})
    store = SafetensorsStore([path])
    write_tensors(tmp_path / "new", {"a": torch.ones(9)}).replace(path)

    assert torch.equal(store.read("a"), torch.zeros(4))
    store.close()


def test_a_file_that_is_cut_while_it_is_read_is_told(tmp_path: Path) -> None:
    """Reading on through the map would end the process with a bus error."""
    path = file_of(tmp_path, {"a": torch.zeros(4096)})
    store = SafetensorsStore([path])
    os.truncate(path, path.stat().st_size - 8)

    with pytest.raises(DamagedWeights, match=f"{path}.*was cut short while it was read"):
        store.read("a")
    store.close()


def test_a_tensor_in_two_files_is_refused_with_both(tmp_path: Path) -> None:
    """Which of them is the model's is nobody's guess."""
    first = file_of(tmp_path, {"x": torch.zeros(1)}, "one.safetensors")
    second = file_of(tmp_path, {"x": torch.ones(1)}, "two.safetensors")

    with pytest.raises(AmbiguousTensor, match=r"x is in one\.safetensors and in two\.safetensors"):
        SafetensorsStore([first, second])


def header_file(path: Path, header: object, data: bytes = b"\0" * 8) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def entry(
    dtype: object = "F32", shape: object = (2,), offsets: object = (0, 8)
) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


TWICE = b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{}}'
HEADERS: dict[str, tuple[object, str]] = {
    "not JSON": (b"{'a': 1}", "isn't JSON"),
    "not UTF-8": (b"\xff\xfe", "isn't JSON"),
    "deep": (b"[" * 5000, "isn't JSON"),
    "a number": (b"7", "no object where one belongs"),
    "a list": ([1, 2], "no object where one belongs"),
    "an entry that is a number": ({"a": 7}, "no object where one belongs"),
    "the same name twice": (TWICE, "names a twice"),
    "without a shape": ({"a": {"dtype": "F32", "data_offsets": [0, 8]}}, "sensible of a"),
    "a negative shape": ({"a": entry(shape=(-2,))}, "sensible of a"),
    "a shape of a thousand dimensions": ({"a": entry(shape=(1,) * 1000)}, "sensible of a"),
    "a shape beyond 63 bits": ({"a": entry(shape=(0, 1 << 63), offsets=(0, 0))}, "sensible of a"),
    "a boolean in a shape": ({"a": entry(shape=(True,))}, "sensible of a"),
    "three offsets": ({"a": entry(offsets=(0, 4, 8))}, "sensible of a"),
    "an unknown type": ({"a": entry(dtype="Q9")}, "'Q9'"),
    "offsets that end before they begin": ({"a": entry(offsets=(8, 0))}, "can't lie in the -8"),
    "more numbers than bytes": ({"a": entry(shape=(3,))}, r"a \[3\] of F32 can't lie in the 8"),
    "a hole": ({"a": entry(shape=(1,), offsets=(4, 8))}, "a begins at byte"),
    "an overlap": ({"a": entry(), "b": entry(shape=(1,), offsets=(4, 8))}, "b begins at byte"),
    "less than there is": ({"a": entry(shape=(1,), offsets=(0, 4))}, "4 more than its header"),
    "more than there is": ({"a": entry(shape=(4,), offsets=(0, 16))}, "cut short"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_damaged_header_is_refused_and_the_file_named(name: str, tmp_path: Path) -> None:
    header, told = HEADERS[name]
    path = header_file(tmp_path / "weights.safetensors", header)

    with pytest.raises(DamagedWeights, match=told) as caught:
        SafetensorsStore([path])
    assert str(path) in str(caught.value)


BEGINNINGS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "0 bytes"),
    "seven bytes": (b"1234567", "7 bytes"),
    "text": (b"once upon a time", "doesn't begin like"),
    "cut in the header": (b"\x40\0\0\0\0\0\0\0{", "inside of its header of 64"),
    "a Git LFS pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:1", "lfs pull"),
}


@pytest.mark.parametrize("name", BEGINNINGS)
def test_a_file_that_is_not_safetensors_is_refused(name: str, tmp_path: Path) -> None:
    content, told = BEGINNINGS[name]
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)

    with pytest.raises(DamagedWeights, match=told):
        SafetensorsStore([path])


def test_a_file_that_can_not_be_opened_is_told_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(DamagedWeights, match="can't be opened: Is a directory"):
        SafetensorsStore([tmp_path])


def test_a_type_without_tensors_is_listed_but_not_read(tmp_path: Path) -> None:
    """Four bits: the facts tell the loader, which refuses it by name."""
    path = header_file(tmp_path / "a", {"a": entry(dtype="F4", shape=(16,))})
    store = SafetensorsStore([path])

    assert store.tensors["a"].dtype == "F4"
    with pytest.raises(MistypedTensor, match="a holds F4"):
        store.read("a")
    store.close()


WHOLE = save({name: TENSORS[name] for name in ("matrix", "brain", "bytes")})


@settings(max_examples=150, deadline=None)
@given(
    at=st.integers(0, len(WHOLE) - 1),
    byte=st.integers(0, 255),
    kept=st.integers(0, len(WHOLE)) | st.just(len(WHOLE)),
)
def test_what_is_accepted_after_damage_is_what_the_library_reads(
    at: int, byte: int, kept: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """One changed byte, one cut: never an error of another kind, never other numbers."""
    damaged = bytearray(WHOLE)
    damaged[at] = byte
    path = tmp_path_factory.getbasetemp() / "damaged.safetensors"
    path.write_bytes(damaged[:kept])
    try:
        store = SafetensorsStore([path])
    except WeightsError:
        return
    try:
        theirs = load(bytes(damaged[:kept]))
    except (SafetensorError, KeyError):
        theirs = None
    ours = {name: store.read(name).clone() for name in store.tensors}
    store.close()
    assert theirs is not None, "accepted here and refused by the library"
    assert set(ours) == set(theirs)
    for name, tensor in theirs.items():
        assert torch.equal(ours[name].view(torch.uint8), tensor.view(torch.uint8))


@LISTS_OPEN_FILES
def test_no_file_stays_open_after_an_error(tmp_path: Path) -> None:
    """Of three files the last is damaged: the two that were opened are closed."""
    good = [file_of(tmp_path, {f"t{at}": torch.ones(2)}, f"{at}.safetensors") for at in range(2)]
    bad = tmp_path / "2.safetensors"
    bad.write_bytes(b"nonsense, all of it")
    gc.disable()
    try:
        with pytest.raises(DamagedWeights):
            SafetensorsStore([*good, bad])
        assert open_weights() == set()
    finally:
        gc.enable()
