"""The beginning of a GGUF file: its metadata, and where its tensors lie.

Layout (version 2 and 3, little endian): magic, version, two counts; metadata as key, type and
value; for each tensor its name, dimensions (fastest first), number type and offset; padding; data.
Every length is checked against the file before it is believed.
"""

import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import attrs
import numpy as np

from adapters.models.errors import AmbiguousTensor, DamagedWeights, UnsupportedQuantization
from adapters.models.gguf.number_types import NumberType, number_types

__all__ = ["Header", "Placed", "Value", "read_header"]

Value = int | float | str | bool | tuple["Value", ...]
"""A metadata value; arrays are tuples."""

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_ALIGNMENT = "general.alignment"
_MOST_DIMENSIONS = 4
_NUMBERS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_FLOAT32, _STRING, _ARRAY = 6, 8, 9


@attrs.frozen(eq=False)
class Placed:
    """A tensor of the file."""

    shape: tuple[int, ...]
    """Slowest dimension first, as torch has it; the file has it the other way round."""
    kind: NumberType
    begin: int
    """First byte in the file."""

    @property
    def numbers(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def num_bytes(self) -> int:
        return self.kind.bytes_of(self.numbers)


@attrs.frozen(eq=False)
class Header:
    """What stands before the data."""

    metadata: Mapping[str, Value]
    tensors: Mapping[str, Placed]


def read_header(file: BinaryIO, path: Path) -> Header:
    """Read and check everything but the tensors' numbers.

    Raises:
        GgufNotInstalled: the extra is missing.
        DamagedWeights: it is no GGUF file, of another version, or cut short.
        UnsupportedQuantization: a tensor is of a number type that can't be undone here.
        AmbiguousTensor: two tensors have the same name.
    """
    kinds = number_types()
    # Not mapped: a map of a file that is cut meanwhile kills the process.
    size = os.fstat(file.fileno()).st_size
    file.seek(0)
    cursor = _Cursor(file, path, size)
    tensor_count, key_count = _opening(cursor)
    metadata = _metadata(cursor, key_count)
    tensors = dict[str, Placed]()
    for _ in range(tensor_count):
        name, placed = _tensor(cursor, kinds)
        if name in tensors:
            raise AmbiguousTensor(f"{path} holds {name} twice; convert the model again")
        tensors[name] = placed
    alignment = metadata.get(_ALIGNMENT, 32)
    if not isinstance(alignment, int) or alignment < 1:
        raise DamagedWeights(f"{path}: {_ALIGNMENT} is {alignment!r}, not a number of bytes")
    first = -(-cursor.at // alignment) * alignment
    moved = {
        name: attrs.evolve(placed, begin=first + placed.begin) for name, placed in tensors.items()
    }
    _check_ends(moved, size, path)
    return Header(metadata, moved)


def _metadata(cursor: "_Cursor", count: int) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for _ in range(count):
        key = cursor.text()
        if key in found:
            raise DamagedWeights(f"{cursor.path} says {key} twice; convert the model again")
        found[key] = cursor.value()
    return found


def _opening(cursor: "_Cursor") -> tuple[int, int]:
    if cursor.take(4) != _MAGIC:
        raise DamagedWeights(f"{cursor.path} is no GGUF file: it doesn't begin with {_MAGIC!r}")
    version = int(cursor.number("I"))
    if version not in _VERSIONS:
        swapped = version in (value << 24 for value in _VERSIONS)
        what = "is big endian" if swapped else f"is of version {version}"
        raise DamagedWeights(
            f"{cursor.path} {what}; read are little-endian files of the versions {_VERSIONS}:"
            " convert the model again"
        )
    return int(cursor.number("Q")), int(cursor.number("Q"))


def _tensor(cursor: "_Cursor", kinds: Mapping[int, NumberType]) -> tuple[str, Placed]:
    name = cursor.text()
    dimensions = int(cursor.number("I"))
    if dimensions > _MOST_DIMENSIONS:
        raise DamagedWeights(f"{cursor.path}: {name} has {dimensions} dimensions")
    shape = tuple(int(cursor.number("Q")) for _ in range(dimensions))[::-1]
    number = int(cursor.number("I"))
    offset = int(cursor.number("Q"))
    kind = kinds.get(number)
    if kind is None:
        raise UnsupportedQuantization(
            f"{cursor.path}: {name} is of number type {number}, which the installed gguf package"
            " doesn't know; a newer one may, or quantise the model in another way"
        )
    if 0 in shape:
        raise DamagedWeights(
            f"{cursor.path}: {name} {list(shape)} has no numbers; convert it again"
        )
    row = shape[-1] if shape else 1
    if row % kind.block_numbers:
        raise DamagedWeights(
            f"{cursor.path}: rows of {name} have {row} numbers, which isn't whole blocks of"
            f" {kind.name}"
        )
    _check_undo(cursor.path, name, kind)
    return name, Placed(shape, kind, offset)


def _check_undo(path: Path, name: str, kind: NumberType) -> None:
    if kind.name.startswith(("I", "F")) and not kind.name.startswith("IQ"):
        return
    try:
        kind.undo(np.zeros(kind.block_bytes, dtype=np.uint8))
    except NotImplementedError as error:
        raise UnsupportedQuantization(
            f"{path}: {name} is quantised as {kind.name}, which the gguf package can't undo;"
            " quantise the model in another way (Q8_0, Q4_K, ...)"
        ) from error


def _check_ends(tensors: Mapping[str, Placed], size: int, path: Path) -> None:
    for name, placed in tensors.items():
        end = placed.begin + placed.num_bytes
        if end > size:
            raise DamagedWeights(
                f"{path} is cut short: {name} ends at byte {end}, the file at {size}; download it"
                " again"
            )


@attrs.define(eq=False)
class _Cursor:
    """Reads forward, and never beyond the end."""

    file: BinaryIO
    path: Path
    size: int
    at: int = 0

    def take(self, count: int) -> bytes:
        end = self.at + count
        # Compared first: a length that is a lie must not be made room for.
        taken = self.file.read(count) if end <= self.size else b""
        if len(taken) != count:
            raise DamagedWeights(
                f"{self.path} is cut short in its header: {count} bytes wanted at {self.at}, the"
                f" file ends at {self.size}; download it again"
            )
        self.at = end
        return taken

    def number(self, code: str) -> int | float | bool:
        value: int | float | bool = struct.unpack(f"<{code}", self.take(struct.calcsize(code)))[0]
        return value

    def text(self) -> str:
        # Tokens may hold any bytes; a damaged one must not keep a model from being opened.
        return self.take(int(self.number("Q"))).decode("utf-8", errors="replace")

    def value(self) -> Value:
        kind = int(self.number("I"))
        return self._array() if kind == _ARRAY else self._single(kind)

    def _single(self, kind: int) -> Value:
        if kind == _STRING:
            return self.text()
        value = self.number(self._code(kind))
        return _short(value) if kind == _FLOAT32 else value

    def _array(self) -> Value:
        kind, count = int(self.number("I")), int(self.number("Q"))
        if kind == _STRING:
            return tuple(self.text() for _ in range(count))
        code = self._code(kind)
        data = self.take(count * struct.calcsize(code))
        values: tuple[int | float | bool, ...] = struct.unpack(f"<{count}{code}", data)
        return tuple(map(_short, values)) if kind == _FLOAT32 else values

    def _code(self, kind: int) -> str:
        code = _NUMBERS.get(kind)
        if code is None:
            raise DamagedWeights(f"{self.path}: metadata at byte {self.at} has no known type")
        return code


def _short(value: float) -> float:
    """The shortest decimal that a 32-bit number stands for: 1e-05, not 9.99999974737875e-06."""
    return float(str(np.float32(value)))
