"""The header of a safetensors file, read and checked before any tensor of it.

The format (https://github.com/huggingface/safetensors, "Format"): eight bytes with the length of
the header, the header as a JSON object, then the tensors' bytes one after another without holes.
Whatever doesn't fit, down to the last byte, is :class:`DamagedWeights` with the file's name.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, cast

import attrs

from adapters.models.errors import DamagedWeights
from adapters.models.store import TensorFacts

__all__ = ["Placed", "read_header"]

_LENGTH_BYTES = 8
_LONGEST_HEADER = 100_000_000
"""As the format says; a longer one is a file of another kind."""
_MOST_NUMBERS, _LARGEST = 64, 1 << 63
"""Dimensions of a tensor, and what each is below: others could take hours to multiply."""
_LFS_POINTER = b"version https://git-lfs"
_BITS = {
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16,
    "F16": 16, "BF16": 16, "U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64,
    "C64": 64,
}  # fmt: skip


@attrs.frozen
class Placed:
    """Where in the file a tensor lies, and what it is."""

    facts: TensorFacts
    begin: int
    """Of its bytes, counted from the beginning of the file."""


def read_header(file: BinaryIO, path: Path) -> dict[str, Placed]:
    """Facts and places of all tensors of an open file, in the order of their bytes.

    Args:
        file: open for reading; its position is moved.
        path: for messages.

    Raises:
        DamagedWeights: the file isn't safetensors, or is cut short, or longer than it says.
    """
    size = file.seek(0, 2)
    file.seek(0)
    start = file.read(max(_LENGTH_BYTES, len(_LFS_POINTER)))
    if start.startswith(_LFS_POINTER):
        raise DamagedWeights(f"{path} is a Git LFS pointer, not the weights: run `git lfs pull`")
    if len(start) < _LENGTH_BYTES:
        raise _damaged(path, f"it has {size} bytes, less than a safetensors header")
    length = int.from_bytes(start[:_LENGTH_BYTES], "little")
    if length > _LONGEST_HEADER:
        raise _damaged(path, "it doesn't begin like a safetensors file")
    if length > size - _LENGTH_BYTES:
        raise _damaged(path, f"it is cut short inside of its header of {length} bytes")
    file.seek(_LENGTH_BYTES)
    begin = _LENGTH_BYTES + length
    placed = _entries(file.read(length), begin, path)
    _check_places(placed, begin, size, path)
    return placed


def _entries(text: bytes, begin: int, path: Path) -> dict[str, Placed]:
    try:
        # As pairs: of a name that stands there twice, an object would keep the last.
        pairs = json.loads(text.decode("utf-8"), object_pairs_hook=list)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"its safetensors header isn't JSON ({error})") from error
    entries: dict[str, Placed] = {}
    for name, fields in _pairs(pairs, path):
        if name == "__metadata__":
            continue
        if name in entries:
            raise _damaged(path, f"its header names {name} twice")
        entries[name] = _entry(name, dict(_pairs(fields, path)), begin, path)
    return dict(sorted(entries.items(), key=lambda item: item[1].begin))


def _pairs(value: object, path: Path) -> list[tuple[str, object]]:
    items = cast("list[object]", value) if isinstance(value, list) else [value]
    # JSON has no tuples: these are the pairs of an object, and nothing else can be.
    if not all(isinstance(item, tuple) for item in items):
        raise _damaged(path, "its safetensors header has no object where one belongs")
    return cast("list[tuple[str, object]]", items)


def _entry(name: str, fields: Mapping[str, object], begin: int, path: Path) -> Placed:
    dtype, shape = fields.get("dtype"), _whole_numbers(fields.get("shape"))
    offsets = _whole_numbers(fields.get("data_offsets"))
    if not isinstance(dtype, str) or shape is None or offsets is None or len(offsets) != 2:
        raise _damaged(path, f"its header says nothing sensible of {name}")
    num_bytes = offsets[1] - offsets[0]
    bits = _BITS.get(dtype)
    if bits is None:
        raise _damaged(path, f"{name} is of a number type {dtype!r} that safetensors doesn't have")
    if math.prod(shape) * bits != num_bytes * 8:
        raise _damaged(
            path, f"{name} {list(shape)} of {dtype} can't lie in the {num_bytes} bytes given to it"
        )
    return Placed(TensorFacts(shape, dtype, num_bytes), begin + offsets[0])


def _whole_numbers(value: object) -> tuple[int, ...] | None:
    if not isinstance(value, list):
        return None
    items = cast("list[object]", value)
    if len(items) > _MOST_NUMBERS:
        return None
    if not all(type(item) is int and 0 <= item < _LARGEST for item in items):
        return None
    return tuple(cast("list[int]", items))


def _check_places(placed: Mapping[str, Placed], begin: int, size: int, path: Path) -> None:
    end = begin
    for name, entry in sorted(placed.items(), key=lambda item: _interval(item[1])):
        if entry.begin != end:
            raise _damaged(path, f"{name} begins at byte {entry.begin}, not {end}")
        end += entry.facts.num_bytes
    if end > size:
        raise _damaged(path, f"it is cut short: its header promises {end} bytes, it has {size}")
    if end < size:
        raise _damaged(path, f"it has {size} bytes, {size - end} more than its header says")


def _interval(entry: Placed) -> tuple[int, int]:
    # A tensor without numbers begins where the next one does, and comes first.
    return entry.begin, entry.facts.num_bytes


def _damaged(path: Path, why: str) -> DamagedWeights:
    return DamagedWeights(f"{path}: {why}; copy it again")
