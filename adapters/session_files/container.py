"""The safetensors container, byte for byte: eight bytes of length, a header in JSON, the arrays.

Written here, since the library gives the header's metadata of files on disk only and its call to
write one has changed between releases; tests hold what is written to the library's own reader.
Layout: https://github.com/huggingface/safetensors#format
"""

import json
import re
from collections.abc import Mapping
from typing import Any, cast

from kernel.state_image import ImageArray

__all__ = ["NotAContainer", "join", "split"]

_LENGTH_BYTES = 8
_METADATA = "__metadata__"


class NotAContainer(ValueError):
    """The bytes are no safetensors file, or not all of one."""


def join(arrays: Mapping[str, ImageArray], metadata: Mapping[str, str]) -> bytes:
    """One file of arrays; those of the widest numbers come first, so that all are aligned."""
    header: dict[str, object] = {_METADATA: dict(metadata)}
    placed = sorted(arrays.items(), key=lambda entry: -_bits(entry[1].dtype))
    end = 0
    for name, array in placed:
        begin, end = end, end + len(array.data)
        header[name] = {
            "dtype": array.dtype,
            "shape": list(array.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _LENGTH_BYTES)  # arrays begin where any number type may
    length = len(text).to_bytes(_LENGTH_BYTES, "little")
    return b"".join([length, text, *(array.data for _, array in placed)])


def split(data: bytes) -> tuple[dict[str, ImageArray], dict[str, str]]:
    """The arrays and the metadata.

    Raises:
        NotAContainer: it is another kind of file, or one that was cut.
    """
    length = int.from_bytes(data[:_LENGTH_BYTES], "little")
    begin = _LENGTH_BYTES + length
    if len(data) < _LENGTH_BYTES or begin > len(data):
        raise NotAContainer("its header doesn't fit into it")
    try:
        header = cast(dict[str, Any], json.loads(data[_LENGTH_BYTES:begin]))
        metadata = dict[str, str](header.pop(_METADATA))
        arrays = {name: _array(entry, data, begin) for name, entry in header.items()}
    except NotAContainer:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        raise NotAContainer("its header is not that of a session's file") from error
    end = begin + sum(len(array.data) for array in arrays.values())
    if end != len(data):
        raise NotAContainer(f"it has {len(data)} bytes where its header tells of {end}")
    return arrays, metadata


def _bits(dtype: str) -> int:
    digits = re.search(r"\d+", dtype)
    return int(digits[0]) if digits else 8


def _array(entry: Mapping[str, Any], data: bytes, base: int) -> ImageArray:
    first, last = entry["data_offsets"]
    if not 0 <= first <= last <= len(data) - base:
        raise NotAContainer("it is cut: an array ends beyond it")
    return ImageArray(
        dtype=str(entry["dtype"]),
        shape=tuple(int(size) for size in entry["shape"]),
        data=data[base + first : base + last],
    )
