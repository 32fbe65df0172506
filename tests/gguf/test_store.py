"""The store: quantised numbers, pieces, and one tensor at a time."""

from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from torch import Tensor

from adapters.models.errors import DamagedWeights, MissingTensor, MistypedTensor
from adapters.models.gguf import store as stores
from adapters.models.gguf.header import read_header
from adapters.models.gguf.layout import Recipe, Source
from adapters.models.gguf.store import GgufStore
from adapters.models.store import pieces

KINDS = (
    *("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"),
    *("IQ4_NL", "IQ4_XS", "IQ2_XXS", "IQ3_S", "TQ1_0", "MXFP4"),
)


def blocks(kind: str, rows: int, blocks_each: int) -> np.ndarray:
    """Random bytes of a type: any bytes are numbers, but for infinite scales."""
    number = gguf.GGMLQuantizationType[kind]
    size = gguf.GGML_QUANT_SIZES[number][1]
    draw = np.random.default_rng(0)
    while True:
        data = draw.integers(0, 256, (rows, blocks_each * size), dtype=np.uint8)
        with np.errstate(all="ignore"):
            numbers = gguf.quants.dequantize(data, number)
        if np.isfinite(numbers).all():
            return data


def doubled(rows: Tensor) -> Tensor:
    return rows * 2


@contextmanager
def opened(path: Path, data: np.ndarray, kind: str) -> Generator[GgufStore]:
    number = gguf.GGMLQuantizationType[kind]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("t", data, raw_dtype=number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = path.open("rb")
    header = read_header(file, path)
    made = {
        "t": Recipe((Source("t"),), None),
        "doubled": Recipe((Source("t"),), doubled),
        "second": Recipe((Source("t", 1),), None),
    }
    with closing(GgufStore(file, path, header.tensors, made)) as store:
        yield store


@pytest.mark.parametrize("kind", KINDS)
def test_a_tensor_is_what_the_gguf_package_makes_of_it(tmp_path: Path, kind: str) -> None:
    data = blocks(kind, 3, 2)
    number = gguf.GGMLQuantizationType[kind]
    with opened(tmp_path / "t.gguf", data, kind) as store:
        expected = torch.as_tensor(np.array(gguf.quants.dequantize(data, number)))

        assert torch.equal(store.read("t"), expected)
        assert store.tensors["t"].shape == tuple(expected.shape)
        assert store.tensors["t"].dtype == kind
        assert store.tensors["t"].num_bytes == data.size
        assert torch.equal(store.read("doubled"), expected * 2)
        assert torch.equal(store.read("second"), expected[1])


@pytest.mark.parametrize("kind", ["Q8_0", "F16", "BF16", "F32"])
def test_pieces_are_the_tensor_in_order_and_small(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "PIECE_BYTES", 1024)
    monkeypatch.setattr(stores, "_STEP", 96)
    numbers = np.random.default_rng(1).normal(size=(40, 64)).astype(np.float32)
    data = gguf.quants.quantize(numbers, gguf.GGMLQuantizationType[kind])
    with opened(tmp_path / "t.gguf", data, kind) as store:
        whole = store.read("t")
        found = [piece.clone() for piece in pieces(store, "t")]

        assert len(found) > 1
        assert all(piece.numel() * piece.itemsize <= 1024 for piece in found)
        assert torch.equal(torch.cat(found), whole.reshape(-1))
        assert torch.equal(torch.cat(list(pieces(store, "doubled"))), whole.reshape(-1) * 2)


def test_a_name_that_is_not_there_and_whole_numbers_are_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "t.gguf", np.arange(4, dtype=np.int32), "I32") as store:
        with pytest.raises(MissingTensor, match="no tensor other"):
            store.read("other")
        with pytest.raises(MistypedTensor, match="t holds I32"):
            store.read("t")


def test_a_file_that_is_cut_while_it_is_open_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "t.gguf"
    with opened(path, np.ones((40, 64), dtype=np.float32), "F32") as store:
        path.write_bytes(path.read_bytes()[:1000])

        with pytest.raises(DamagedWeights, match="was cut short while it was read"):
            store.read("t")
