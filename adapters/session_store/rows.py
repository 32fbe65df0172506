"""Turns, facts and the layouts of images as values of a row, and the checksums over them.

A checksum covers the name of the session too: a row that turns up under another one is damaged.
"""

import json
import sys
import zlib
from array import array
from collections.abc import Mapping, Sequence
from typing import cast

from kernel.session_store import StoredTurn
from kernel.state_image import ImageArray, StateImage

__all__ = [
    "TOKEN_BYTES",
    "are_of",
    "checksum",
    "decode_facts",
    "decode_tokens",
    "encode_facts",
    "encode_layout",
    "encode_tokens",
    "image_checksum",
    "image_of",
    "turn_checksum",
]

TOKEN_BYTES = 4


def encode_tokens(tokens: "array[int]") -> bytes:
    """Four bytes each, the lowest first."""
    if sys.byteorder == "big":
        tokens = tokens[:]
        tokens.byteswap()
    return tokens.tobytes()


def decode_tokens(data: bytes) -> "array[int]":
    """What :func:`encode_tokens` was given."""
    tokens = array("I")
    tokens.frombytes(data)
    if sys.byteorder == "big":
        tokens.byteswap()
    return tokens


def encode_facts(facts: Mapping[str, object]) -> bytes:
    """JSON, or nothing for no facts.

    Raises:
        TypeError: one is no JSON value.
        ValueError: as well.
    """
    if not facts:
        return b""
    try:
        return json.dumps(facts, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # half a surrogate pair, which a careless client may send
        return json.dumps(facts, separators=(",", ":")).encode()


def decode_facts(data: bytes) -> Mapping[str, object]:
    """What :func:`encode_facts` was given."""
    return cast(Mapping[str, object], json.loads(data)) if data else {}


def checksum(*parts: bytes | str | int) -> int:
    """CRC-32 over parts, each with its length, so that none can borrow from its neighbour."""
    value = 0
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        value = zlib.crc32(data, zlib.crc32(len(data).to_bytes(8, "little"), value))
    return value


def are_of(values: Sequence[object], *kinds: type) -> bool:
    """Whether values are of these types; a checksum can't tell text from the same bytes."""
    return [type(value) for value in values] == list(kinds)


def turn_checksum(session_id: str, turn: StoredTurn, tokens: bytes, facts: bytes) -> int:
    """Over all that is kept of a turn."""
    return checksum(session_id, turn.start, turn.input_len, turn.kind, tokens, facts)


def image_checksum(
    session_id: str, position: int, first_position: int, layout: str, chunks: Sequence[bytes]
) -> int:
    """Over all that is kept of an image; the layout says where in the chunks its arrays lie."""
    value = checksum(session_id, position, first_position, layout)
    for chunk in chunks:
        value = zlib.crc32(chunk, value)
    return value


def encode_layout(image: StateImage) -> str:
    """Names, number types and shapes of the arrays, in the order in which their bytes lie."""
    layout = [
        [name, array.dtype, list(array.shape), len(array.data)]
        for name, array in image.arrays.items()
    ]
    return json.dumps(layout, separators=(",", ":"))


def image_of(position: int, first_position: int, layout: str, data: bytes) -> StateImage:
    """The image of a checked row.

    Raises:
        ValueError: the bytes don't fill the layout.
    """
    arrays: dict[str, ImageArray] = {}
    entries = cast(Sequence[tuple[str, str, list[int], int]], json.loads(layout))
    begin = 0
    for name, dtype, shape, size in entries:
        arrays[name] = ImageArray(dtype=dtype, shape=tuple(shape), data=data[begin : begin + size])
        begin += size
    if begin != len(data):
        raise ValueError(f"its arrays have {begin} bytes, and {len(data)} are kept")
    return StateImage(position=position, first_position=first_position, arrays=arrays)
