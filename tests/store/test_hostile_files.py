"""A file that somebody made to do harm is refused by name, and costs no more than its own size."""

import json
import tracemalloc
from array import array
from collections.abc import Callable
from typing import Any

import pytest

from adapters.session_files import format as session_format
from adapters.session_files import pack, unpack
from adapters.session_files.container import join, split
from kernel.errors import SessionFileError
from kernel.state_image import ImageArray
from tests.store.release_files import HEADER, IMAGE, RECORD

DATA = pack(RECORD, IMAGE, HEADER)
FORMAT = {"format": "tenure-session", "format_version": "1"}
DEEP = "[" * 100_000


def refusal(data: bytes) -> SessionFileError:
    with pytest.raises(SessionFileError) as caught:
        unpack(data, HEADER, source="a.session")
    return caught.value


def container(header: str, arrays: bytes = b"") -> bytes:
    text = header.encode()
    return len(text).to_bytes(8, "little") + text + arrays


def signed(arrays: dict[str, ImageArray], metadata: dict[str, str]) -> bytes:
    """A file with the right checksum, as anyone can make one."""
    metadata = {name: value for name, value in metadata.items() if name != "sha256"}
    # What makes it right is no secret.
    digest: Callable[..., str] = vars(session_format)["_digest"]
    return join(arrays, {**metadata, "sha256": digest(arrays, metadata)})


def with_log(change: Callable[[dict[str, Any]], object]) -> bytes:
    arrays, metadata = split(DATA)
    log = json.loads(arrays["log.turns"].data)
    change(log)
    text = json.dumps(log).encode()
    return signed({**arrays, "log.turns": ImageArray("U8", (len(text),), text)}, metadata)


def test_a_file_that_was_signed_again_is_read() -> None:
    """What the others here are refused for is what they say of themselves."""
    record, _ = unpack(with_log(dict[str, Any].copy), HEADER, source="x")

    assert record == RECORD


@pytest.mark.parametrize(
    "entry",
    [
        '{"dtype": "U8", "shape": [1e999], "data_offsets": [0, 0]}',
        '{"dtype": "U8", "shape": [-2, -2], "data_offsets": [0, 4]}',
        '{"dtype": "U8", "shape": [9223372036854775807, 2, 2], "data_offsets": [0, 4]}',
        '{"dtype": "F32", "shape": [4], "data_offsets": [0, 4]}',
        '{"dtype": "U8", "shape": [4], "data_offsets": [0, 4611686018427387904]}',
        '{"dtype": "U8", "shape": [0], "data_offsets": [4, 0]}',
        '{"dtype": "evil", "shape": [4], "data_offsets": [0, 4]}',
        '{"dtype": "U8", "shape": ' + DEEP + ', "data_offsets": [0, 4]}',
        '{"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}, "a": {}',
    ],
)
def test_a_header_that_lies_of_an_array_is_refused(entry: str) -> None:
    """Shapes, types and places are those of the bytes that are there."""
    header = json.dumps({"__metadata__": FORMAT})[:-1] + f', "a": {entry}}}'

    assert refusal(container(header, bytes(4))).reason == "damaged"


@pytest.mark.parametrize("length", [3, 1 << 40, (1 << 64) - 1])
def test_a_header_of_a_length_that_is_not_there_takes_no_memory(length: int) -> None:
    """The number is compared with the bytes that there are."""
    assert refusal(length.to_bytes(8, "little") + b"{}").reason == "foreign"
    assert refusal(container(DEEP)).reason == "foreign"


def test_arrays_that_share_their_bytes_are_refused_before_any_is_copied() -> None:
    """Else a megabyte of header would ask for terabytes."""
    size = 1 << 16
    entry = {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}
    header = json.dumps({"__metadata__": FORMAT, **{f"a{n}": entry for n in range(2000)}})
    data = container(header, bytes(size))
    tracemalloc.start()
    try:
        error = refusal(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert error.reason == "damaged"
    assert peak < 20 * len(data)


@pytest.mark.parametrize("version", ["9" * 5000, "0", "-1", "1.0", "", "one"])
def test_a_version_that_no_release_writes_is_refused_as_a_version(version: str) -> None:
    """Whatever its length."""
    arrays, metadata = split(DATA)
    error = refusal(signed(arrays, {**metadata, "format_version": version}))

    assert error.reason == "version"
    assert len(str(error)) < 300


def _first(**change: object) -> Callable[[dict[str, Any]], object]:
    return lambda log: log["turns"][0].update(change)


def _state(**change: object) -> Callable[[dict[str, Any]], object]:
    return lambda log: log["state"].update(change)


def _log(**change: object) -> Callable[[dict[str, Any]], object]:
    return lambda log: log.update(change)


def _lengths(*lengths: int) -> Callable[[dict[str, Any]], object]:
    def change(log: dict[str, Any]) -> None:
        start, turns = 0, list[object]()
        for length in lengths:
            turns.append({**log["turns"][0], "start": start, "input_len": 0, "tokens": length})
            start += length
        log["turns"] = turns

    return change


@pytest.mark.parametrize(
    "change",
    [
        _first(input_len=-1),
        _first(input_len=1000),
        _first(tokens=4.0),
        _first(kind="another"),
        _first(kind=[]),
        _first(facts=[]),
        _lengths(6, -3, 4),
        _log(facts="none"),
        _log(session=5),
        _log(turns={}),
        _state(position="4"),
        _state(position=True),
        _state(position=1 << 40),
        _state(position=RECORD.log_len),
        _state(first_position=IMAGE.position),
        _state(first_position=-1),
        _state(arrays=["another"]),
    ],
)
def test_a_log_that_contradicts_itself_is_refused(
    change: Callable[[dict[str, Any]], object],
) -> None:
    """Its checksum is right; the kernel must not be the one that finds out."""
    assert refusal(with_log(change)).reason == "damaged"


def test_a_log_that_is_nested_without_end_is_refused() -> None:
    """And costs nobody their stack."""
    arrays, metadata = split(DATA)
    text = DEEP.encode()
    data = signed({**arrays, "log.turns": ImageArray("U8", (len(text),), text)}, metadata)

    assert refusal(data).reason == "damaged"


def test_tokens_of_half_a_number_are_refused() -> None:
    """Seven bytes are no two ids."""
    arrays, metadata = split(DATA)
    half = array("I", [1]).tobytes() + b"abc"
    data = signed({**arrays, "log.tokens": ImageArray("U8", (len(half),), half)}, metadata)

    assert refusal(data).reason == "damaged"
