"""Files that aren't whole, or aren't what is read here: each is an error of its own, by name."""

import struct
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

from adapters.models.errors import (
    AmbiguousTensor,
    DamagedWeights,
    ModelFileMissing,
    UnsupportedQuantization,
    UnsupportedRope,
)
from adapters.models.gguf.errors import (
    GgufNotInstalled,
    MetadataMissing,
    UnsupportedArchitecture,
)
from adapters.models.gguf.header import read_header
from adapters.models.gguf.reader import find_gguf, open_gguf


def write(
    path: Path,
    *,
    architecture: str = "llama",
    without: str = "",
    queries: bool = False,
    **more: int | str,
) -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    sizes = {"block_count": 1, "embedding_length": 8, "context_length": 32}
    sizes |= {"feed_forward_length": 8, "attention.head_count": 2}
    for name, value in sizes.items():
        if name != without:
            writer.add_uint32(f"{architecture}.{name}", value)
    writer.add_float32(f"{architecture}.attention.layer_norm_rms_epsilon", 1e-5)
    for key, added in more.items():
        name = key.replace("__", ".")
        if isinstance(added, str):
            writer.add_string(name, added)
        else:
            writer.add_uint32(name, added)
    writer.add_tensor("token_embd.weight", np.arange(32, dtype=np.float32).reshape(4, 8))
    if queries:
        writer.add_tensor("blk.0.attn_q.weight", np.zeros((8, 8), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_file_cut_anywhere_is_damaged(tmp_path: Path) -> None:
    whole = write(tmp_path / "whole.gguf").read_bytes()
    cut = tmp_path / "cut.gguf"
    for length in (*range(0, len(whole) - 1, 7), len(whole) - 32):
        cut.write_bytes(whole[:length])

        with pytest.raises(DamagedWeights, match=r"cut\.gguf"):
            open_gguf(cut)


@pytest.mark.parametrize(
    ("begin", "said"),
    [
        (b"GGML" + struct.pack("<IQQ", 3, 0, 0), "is no GGUF file"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "of version 1"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 1 << 60), "cut short in its header"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<I", 99), "no known"),
    ],
)
def test_what_is_no_such_file_is_said(tmp_path: Path, begin: bytes, said: str) -> None:
    path = tmp_path / "odd.gguf"
    path.write_bytes(begin)

    with pytest.raises(DamagedWeights, match=said):
        open_gguf(path)


def with_tensor(path: Path, dimensions: tuple[int, ...], kind: int, count: int = 1) -> Path:
    """A file with nothing but tensors ``t`` of this shape and number type."""
    data = b"GGUF" + struct.pack("<IQQ", 3, count, 0)
    for _ in range(count):
        data += struct.pack("<Q", 1) + b"t" + struct.pack("<I", len(dimensions))
        data += struct.pack(f"<{len(dimensions)}Q", *dimensions) + struct.pack("<IQ", kind, 0)
    path.write_bytes(data + bytes(4096))
    return path


@pytest.mark.parametrize(
    ("dimensions", "kind", "error", "said"),
    [
        ((32,), 77, UnsupportedQuantization, "t is of number type 77"),
        ((256,), 15, UnsupportedQuantization, "t is quantised as Q8_K"),
        ((33,), 8, DamagedWeights, "rows of t have 33 numbers"),
        ((1, 1, 1, 1, 1), 0, DamagedWeights, "t has 5 dimensions"),
        ((), 8, DamagedWeights, "rows of t have 1 numbers"),
        ((0, 1 << 62), 0, DamagedWeights, "t .* has no numbers"),
    ],
)
def test_a_tensor_that_cannot_be_read_is_named(
    tmp_path: Path, dimensions: tuple[int, ...], kind: int, error: type[Exception], said: str
) -> None:
    path = with_tensor(tmp_path / "odd.gguf", dimensions, kind)

    with path.open("rb") as file, pytest.raises(error, match=said):
        read_header(file, path)


def test_a_key_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    """Which of them is meant is nobody's guess."""
    entry = struct.pack("<Q", 1) + b"k" + struct.pack("<II", 4, 7)
    path = tmp_path / "odd.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + entry * 2 + bytes(64))

    with path.open("rb") as file, pytest.raises(DamagedWeights, match="says k twice"):
        read_header(file, path)


@pytest.mark.parametrize("count", [0, 2, 1 << 31])
def test_a_number_of_blocks_that_no_tensors_back_is_refused(tmp_path: Path, count: int) -> None:
    """It would be counted up to."""
    path = write(tmp_path / "model.gguf", without="block_count", llama__block_count=count)

    with pytest.raises(MetadataMissing, match="block_count must be from 1 to 1, the number of"):
        open_gguf(path)


def test_more_further_blocks_than_blocks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MetadataMissing, match="nextn_predict_layers must be less than 1"):
        open_gguf(write(tmp_path / "model.gguf", llama__nextn_predict_layers=1))


def test_sizes_that_tensors_contradict_are_damage_and_the_file_is_closed(tmp_path: Path) -> None:
    """Five heads can't share eight rows; no table of an architecture looks at every shape."""
    path = tmp_path / "model.gguf"
    write(path, without="attention.head_count", llama__attention__head_count=5, queries=True)

    with pytest.raises(DamagedWeights, match="metadata and its tensors don't fit together"):
        open_gguf(path)


def test_two_tensors_of_one_name_are_refused(tmp_path: Path) -> None:
    path = with_tensor(tmp_path / "odd.gguf", (4,), 0, count=2)

    with path.open("rb") as file, pytest.raises(AmbiguousTensor, match="holds t twice"):
        read_header(file, path)


def test_an_unknown_architecture_names_those_that_are_known(tmp_path: Path) -> None:
    path = write(tmp_path / "model.gguf", architecture="gpt2")

    with pytest.raises(UnsupportedArchitecture, match="'gpt2' isn't read; known: falcon-h1, "):
        open_gguf(path)


@pytest.mark.parametrize("name", ["block_count", "embedding_length", "attention.head_count"])
def test_a_missing_key_is_named(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "model.gguf", without=name)

    with pytest.raises(MetadataMissing, match=rf"model\.gguf lacks llama\.{name}"):
        open_gguf(path)


def test_a_key_of_another_type_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "model.gguf", without="block_count", llama__block_count="many")

    with pytest.raises(MetadataMissing, match=r"llama\.block_count must be a whole number"):
        open_gguf(path)


def test_llamas_experts_and_split_files_and_odd_rotations_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedArchitecture, match="with experts"):
        open_gguf(write(tmp_path / "a.gguf", llama__expert_count=4))
    with pytest.raises(UnsupportedArchitecture, match="one of 3 files"):
        open_gguf(write(tmp_path / "b.gguf", split__count=3))
    with pytest.raises(UnsupportedRope, match="'longrope' isn't read"):
        open_gguf(write(tmp_path / "c.gguf", llama__rope__scaling__type="longrope"))


def test_without_the_package_the_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "model.gguf")
    monkeypatch.setitem(sys.modules, "gguf", None)

    with pytest.raises(GgufNotInstalled, match=r"pip install 'tenure\[gguf\]'"):
        open_gguf(path)


def test_a_directory_with_one_file_means_that_file(tmp_path: Path) -> None:
    path = write(tmp_path / "model.gguf")

    assert find_gguf(tmp_path) == path
    assert find_gguf(path) == path

    write(tmp_path / "other.gguf")
    with pytest.raises(ModelFileMissing, match="has 2 GGUF files"):
        find_gguf(tmp_path)

    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    assert find_gguf(tmp_path) is None


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(DamagedWeights, match="can't be opened"):
        open_gguf(tmp_path / "none.gguf")
