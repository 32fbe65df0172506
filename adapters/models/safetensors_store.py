"""Safetensors files as a tensor store: memory-mapped, one stretch of a tensor at a time.

A map lives as long as the piece of tensor that lies in it, so what has been copied doesn't stay
resident, and nothing is left when reading ends early. The weights themselves are copied out
always, also where number type and layout would let them stay mapped: a file that is rewritten
in place would otherwise change a model while it serves, and one that is cut would kill the
process with a bus error.
"""

import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import attrs
import torch
from torch import Tensor

from adapters.models.errors import AmbiguousTensor, DamagedWeights, MissingTensor, MistypedTensor
from adapters.models.safetensors_header import Placed, read_header
from adapters.models.store import TORCH_NAMES, TensorFacts

__all__ = ["PIECE_BYTES", "SafetensorsStore"]

PIECE_BYTES = 16 << 20
"""Most bytes of a file that are mapped at once while weights are streamed."""

_TYPES = {name: dtype for dtype, name in TORCH_NAMES.items()}


@attrs.frozen(eq=False)
class _Source:
    path: Path
    file: BinaryIO
    placed: Placed


class SafetensorsStore:
    """One file or several as one :class:`~adapters.models.store.PieceStore`; headers are read here.

    The files stay open until :meth:`close`, so that what is read later is what was checked, also
    when a file of the same name takes the place of one of them.

    Args:
        paths: the files; no two may hold a tensor of the same name.

    Raises:
        DamagedWeights: a file can't be opened, or its header doesn't fit it.
        AmbiguousTensor: two files have a tensor of the same name.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._files: list[BinaryIO] = []
        self._sources: dict[str, _Source] = {}
        try:
            for path in paths:
                self._open(path)
        except BaseException:
            self.close()
            raise
        self._facts = {name: source.placed.facts for name, source in self._sources.items()}

    def _open(self, path: Path) -> None:
        try:
            file = path.open("rb")
        except OSError as error:
            raise DamagedWeights(f"{path} can't be opened: {error.strerror}") from error
        self._files.append(file)
        for name, placed in read_header(file, path).items():
            earlier = self._sources.get(name)
            if earlier is not None:
                raise AmbiguousTensor(
                    f"{name} is in {earlier.path.name} and in {path.name}; remove the file that"
                    " doesn't belong to the model"
                )
            self._sources[name] = _Source(path, file, placed)

    @property
    def tensors(self) -> Mapping[str, TensorFacts]:
        return self._facts

    def file_of(self, name: str) -> Path:
        """The file that holds a tensor."""
        return self._source(name).path

    def read(self, name: str, /) -> Tensor:
        source = self._source(name)
        facts = source.placed.facts
        return self._map(name, source, 0, facts.num_bytes).view(facts.shape)

    def pieces(self, name: str, /) -> Iterator[Tensor]:
        source = self._source(name)
        total = source.placed.facts.num_bytes
        for begin in range(0, total, PIECE_BYTES):
            yield self._map(name, source, begin, min(PIECE_BYTES, total - begin))

    def close(self) -> None:
        for file in self._files:
            file.close()
        self._files, self._sources = [], {}

    def _source(self, name: str) -> _Source:
        source = self._sources.get(name)
        if source is None:
            raise MissingTensor(f"the weights have no tensor {name}, or are closed")
        return source

    def _map(self, name: str, source: _Source, begin: int, length: int) -> Tensor:
        dtype = _TYPES.get(source.placed.facts.dtype)
        if dtype is None:
            raise MistypedTensor(f"{name} holds {source.placed.facts.dtype}; no such weights here")
        if not length:
            return torch.empty(0, dtype=dtype)
        first = source.placed.begin + begin
        if os.fstat(source.file.fileno()).st_size < first + length:
            raise DamagedWeights(f"{source.path} was cut short while it was read; copy it again")
        skipped = first % mmap.ALLOCATIONGRANULARITY
        try:
            mapped = mmap.mmap(
                source.file.fileno(),
                length + skipped,
                access=mmap.ACCESS_COPY,  # torch has no read-only tensors
                offset=first - skipped,
            )
        except OSError as error:
            raise DamagedWeights(f"{source.path} can't be mapped: {error.strerror}") from error
        return torch.frombuffer(mapped, dtype=dtype, count=length // dtype.itemsize, offset=skipped)
