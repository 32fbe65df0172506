"""Where a model's tensors come from: facts first, without reading data; then one at a time.

A store is read twice. The loader compares the facts of all tensors with what the configuration
asks for, and only when every one fits does it read the first number.
"""

from collections.abc import Iterator, Mapping
from typing import Protocol, runtime_checkable

import attrs
import torch
from torch import Tensor

from adapters.models.errors import MissingTensor

__all__ = ["TORCH_NAMES", "MemoryStore", "PieceStore", "TensorFacts", "TensorStore", "pieces"]

TORCH_NAMES: Mapping[torch.dtype, str] = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
}
"""Number types by the names that safetensors headers use."""


@attrs.frozen
class TensorFacts:
    """What a file says of a tensor before any of its numbers is read."""

    shape: tuple[int, ...]
    dtype: str
    """As named on disk: "F32", "BF16", "F16", "F64", "I8", "Q4_K", ..."""
    num_bytes: int
    """On disk."""


class TensorStore(Protocol):
    """Named tensors that lie somewhere. Used by one thread at a time."""

    @property
    def tensors(self) -> Mapping[str, TensorFacts]:
        """Facts of every tensor by name, from headers alone."""
        ...

    def read(self, name: str, /) -> Tensor:
        """One tensor on the CPU, dense, in the float type of the store.

        It may share memory with the store: whoever keeps it or writes into it copies it first.
        A store that reads a file may let go of the pages of earlier tensors here.

        Raises:
            MissingTensor: no tensor of this name.
            DamagedWeights: the file isn't what its header says.
        """
        ...

    def close(self) -> None:
        """Let go of files and maps; nothing can be read afterwards. May be called twice."""
        ...


@runtime_checkable
class PieceStore(TensorStore, Protocol):
    """A store that needn't hold a whole tensor at once."""

    def pieces(self, name: str, /) -> Iterator[Tensor]:
        """The numbers of a tensor in order, flat, a stretch at a time; errors as :meth:`read`.

        A piece is worth its memory until the next is asked for; let go of it then.
        """
        ...


def pieces(store: TensorStore, name: str) -> Iterator[Tensor]:
    """A tensor's numbers piece by piece where the store can, else all at once."""
    if isinstance(store, PieceStore):
        yield from store.pieces(name)
    else:
        yield store.read(name).reshape(-1)


class MemoryStore:
    """Tensors that are in memory already, as a :class:`TensorStore`."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self._weights = dict(weights)
        self._facts = {name: _facts(tensor) for name, tensor in self._weights.items()}

    @property
    def tensors(self) -> Mapping[str, TensorFacts]:
        return self._facts

    def read(self, name: str, /) -> Tensor:
        tensor = self._weights.get(name)
        if tensor is None:
            raise MissingTensor(f"the weights have no tensor {name}")
        return tensor.detach().to("cpu")

    def close(self) -> None:
        self._weights = {}


def _facts(tensor: Tensor) -> TensorFacts:
    return TensorFacts(
        shape=tuple(tensor.shape),
        dtype=TORCH_NAMES.get(tensor.dtype, str(tensor.dtype).removeprefix("torch.")),
        num_bytes=tensor.numel() * tensor.itemsize,
    )
