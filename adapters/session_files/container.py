"""The safetensors container: eight bytes of length, a header in JSON, the arrays.

Reading is left to the library, which looks at every length, type, shape and place before it copies
anything. Writing is done here, in a dozen lines, since of the releases that we admit

- ``serialize`` takes the arrays' bytes up to 0.7, and pointers to them since 0.8;
- each puts the metadata down in another order every time, where the same session should be the
  same bytes, which tests hold a release to;
- ``serialize`` has all arrays twice beside the ones given (0.8: 511 MiB for 256), this once;
- ``safetensors.numpy`` has no bfloat16, and ``safetensors.torch`` needs torch, which a session of
  the fake device does not.

Layout: https://github.com/huggingface/safetensors#format
"""

import json
import re
from collections.abc import Mapping
from typing import Any

import safetensors

from kernel.state_image import ImageArray

__all__ = ["NotAContainer", "join", "split"]

_library: Any = safetensors  # its stubs are only partly typed
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
    try:
        entries: list[tuple[str, dict[str, Any]]] = _library.deserialize(data)
    except _library.SafetensorError as error:
        raise NotAContainer(f"its bytes are not those of a safetensors file ({error})") from error
    arrays = dict[str, ImageArray]()
    entries.reverse()
    while entries:  # one after another, so that no two copies of all arrays are there at once
        name, entry = entries.pop()
        arrays[name] = ImageArray(entry["dtype"], tuple(entry["shape"]), bytes(entry["data"]))
    length = int.from_bytes(data[:_LENGTH_BYTES], "little")
    header: dict[str, Any] = json.loads(data[_LENGTH_BYTES : _LENGTH_BYTES + length])
    return arrays, header.get(_METADATA) or {}


def _bits(dtype: str) -> int:
    digits = re.search(r"\d+", dtype)
    return int(digits[0]) if digits else 8
