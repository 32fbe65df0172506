"""One session as one file: whole or refused by name, and readable by safetensors itself."""

import json
from array import array
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest
import safetensors
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.session_files import FORMAT_VERSION, LocalSessionFiles, pack, session_files, unpack
from adapters.session_files.container import join, split
from adapters.session_store import LocalDisk
from kernel.errors import SessionFileError
from kernel.session_store import FileHeader, SessionFiles, SessionRecord, StoredTurn
from tests.store.model import plain
from tests.store.operations import Operation, Rename, Sync, SyncDirectory, Write
from tests.store.recording import RecordingDisk, Tape
from tests.store.release_files import HEADER, IMAGE, RECORD

# Its stubs are only partly typed.
library: Any = safetensors
DATA = pack(RECORD, IMAGE, HEADER)


def refusal(data: bytes, header: FileHeader = HEADER) -> SessionFileError:
    with pytest.raises(SessionFileError) as caught:
        unpack(data, header, source="a.session")
    assert "a.session" in str(caught.value)
    return caught.value


def test_the_library_reads_what_is_written(tmp_path: Path) -> None:
    """It is a safetensors file for everyone else, too."""
    path = tmp_path / "a.safetensors"
    session_files.write(path, DATA)
    arrays = dict(library.deserialize(DATA))
    with library.safe_open(path, framework="np") as opened:
        metadata = opened.metadata()
        tokens = opened.get_tensor("log.tokens")

    assert bytes(arrays["state.recurrent"]["data"]) == IMAGE.arrays["recurrent"].data
    assert arrays["state.keys"]["shape"] == [1, 4, 2, 5]
    assert metadata["format"] == "tenure-session"
    assert metadata["format_version"] == "1"
    assert metadata["fingerprint"] == HEADER.fingerprint
    assert tokens.tolist() == [1, 2, 3, 2**32 - 1, 7, 8, 9]


def test_a_session_without_a_state_is_a_file_too() -> None:
    """A log alone can be prefilled anywhere that the model is."""
    bare = attrs.evolve(RECORD, state_position=None, state_bytes=0)

    assert unpack(pack(bare, None, HEADER), HEADER, source="bare") == (bare, None)


def test_a_session_without_turns_is_a_file_too() -> None:
    """It was opened and saved before its first turn."""
    empty = SessionRecord(session_id="empty", turns=[])

    assert unpack(pack(empty, None, HEADER), HEADER, source="empty") == (empty, None)


TEXT = st.text(st.characters(), max_size=8)  # half surrogate pairs as well
FACTS = st.dictionaries(TEXT, st.one_of(TEXT, st.integers(), st.none(), st.lists(st.booleans())))

KINDS: st.SearchStrategy[Literal["generate", "append"]] = st.sampled_from(["generate", "append"])


@st.composite
def records(draw: st.DrawFn) -> SessionRecord:
    turns = list[StoredTurn]()
    for _ in range(draw(st.integers(0, 4))):
        tokens = draw(st.lists(st.integers(0, 2**32 - 1), max_size=6))
        start = turns[-1].start + len(turns[-1].tokens) if turns else 0
        input_len = draw(st.integers(0, len(tokens)))
        turns.append(StoredTurn(start, input_len, array("I", tokens), draw(KINDS), draw(FACTS)))
    return SessionRecord(session_id=draw(TEXT), turns=turns, facts=draw(FACTS))


@given(records())
@settings(max_examples=60)
def test_what_is_packed_is_unpacked(record: SessionRecord) -> None:
    """Every log, in every script."""
    assert unpack(pack(record, None, HEADER), HEADER, source="x") == (record, None)


@pytest.mark.parametrize("length", sorted({0, 1, 7, 8, 9, 100, 500, len(DATA) - 1}))
def test_a_file_that_was_cut_is_refused(length: int) -> None:
    """A copy that was interrupted is no session."""
    error = refusal(DATA[:length])

    assert error.reason == ("damaged" if length >= 100 else "foreign")


def test_every_flipped_byte_is_found_or_harmless() -> None:
    """Checked byte for byte: the checksum covers the log, the arrays and whose they are."""
    unharmed = 0
    for place in range(len(DATA)):
        flipped = bytearray(DATA)
        flipped[place] ^= 0x20
        try:
            record, image = unpack(bytes(flipped), HEADER, source="flipped")
        except SessionFileError:
            continue
        unharmed += 1

        assert record == RECORD
        assert image is not None
        assert plain(image) == plain(IMAGE)
    assert unharmed < 20  # the padding of the header is read by nobody


def changed(**metadata: str) -> bytes:
    arrays, kept = split(DATA)
    return join(arrays, {**kept, **metadata})


@pytest.mark.parametrize(
    ("data", "reason", "says"),
    [
        (changed(format_version=str(FORMAT_VERSION + 1)), "version", "version 2"),
        (changed(format="another"), "foreign", "no session's file"),
        (changed(model="another"), "damaged", "checksum"),
        (changed(sha256="0"), "damaged", "checksum"),
        (join({}, {"format": "pt"}), "foreign", "no session's file"),
        (b"PK\x03\x04 some archive", "foreign", "no session's file"),
        (DATA + b"\0", "damaged", "bytes"),
        (b"\x05" + bytes(7) + b"[1,2]", "foreign", "no session's file"),
        (b"\x02" + bytes(7) + b"{}", "foreign", "no session's file"),
    ],
)
def test_a_newer_foreign_or_damaged_file_is_refused_by_name(
    data: bytes, reason: str, says: str
) -> None:
    """Nothing of it is loaded."""
    error = refusal(data)

    assert (error.reason, says in str(error)) == (reason, True), error


@pytest.mark.parametrize(
    ("header", "reason", "says"),
    [
        (attrs.evolve(HEADER, fingerprint="f2", model="mine"), "model", ["fixture", "mine", "f2"]),
        (attrs.evolve(HEADER, dtype="float64"), "dtype", ["bfloat16", "float64"]),
        (attrs.evolve(HEADER, state_dtype="float64"), "dtype", ["state dtype", "float64"]),
    ],
)
def test_a_file_of_another_model_or_dtype_is_refused_by_name(
    header: FileHeader, reason: str, says: list[str]
) -> None:
    """A state is noise to any other model."""
    error = refusal(DATA, header)

    assert error.reason == reason
    assert all(word in str(error) for word in says)


def test_facts_that_are_no_json_are_refused_before_anything_is_written() -> None:
    """The error names the session."""
    with pytest.raises(SessionFileError, match="'bad'"):
        pack(SessionRecord("bad", [], {"object": object()}), None, HEADER)


def test_a_file_is_durable_before_it_has_its_name(tmp_path: Path) -> None:
    """Written, synced, renamed, its directory synced."""
    tape = Tape(tmp_path)
    LocalSessionFiles(RecordingDisk(tape)).write(tmp_path / "a.session", DATA)
    kinds: list[type[Operation]] = [Write, Sync, Rename, SyncDirectory]

    assert [type(each) for each in tape.operations[1:]] == kinds
    assert session_files.read(tmp_path / "a.session") == DATA
    assert [path.name for path in tmp_path.iterdir()] == ["a.session"]


@pytest.mark.parametrize("step", [Write, Sync, Rename, SyncDirectory])
def test_a_file_that_cannot_be_written_leaves_the_old_one(
    tmp_path: Path, step: type[Operation]
) -> None:
    """Old or new, and nothing beside it."""

    def fault(operation: Operation) -> None:
        if isinstance(operation, step):
            raise OSError(28, "No space left on device")

    path = tmp_path / "a.session"
    path.write_bytes(b"old")
    with pytest.raises(SessionFileError) as caught:
        LocalSessionFiles(RecordingDisk(Tape(tmp_path, fault=fault))).write(path, DATA)

    assert caught.value.reason == "full"
    assert path.read_bytes() == (DATA if step is SyncDirectory else b"old")
    assert [each.name for each in tmp_path.iterdir()] == ["a.session"]


def test_a_file_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    """A typed error with the path."""
    with pytest.raises(SessionFileError, match="nowhere") as read:
        session_files.read(tmp_path / "nowhere")
    with pytest.raises(SessionFileError, match="nowhere") as written:
        session_files.write(tmp_path / "nowhere" / "a", b"")

    assert read.value.reason == written.value.reason == "failed"


def test_the_adapter_keeps_the_kernels_protocol() -> None:
    """What the entry point names is checked by the type checker here."""
    files: SessionFiles = session_files

    assert isinstance(session_files.disk, LocalDisk)
    assert files is session_files


def test_the_log_is_json_that_a_person_can_read() -> None:
    """For those who come when the package is gone."""
    log = json.loads(split(DATA)[0]["log.turns"].data)

    assert log["session"] == RECORD.session_id
    assert log["turns"][0]["facts"]["messages"][0]["role"] == "user"


def test_a_directory_in_the_place_of_a_file_is_told_as_one(tmp_path: Path) -> None:
    """To make room would not help, and nobody knows what an empty name is."""
    with pytest.raises(SessionFileError, match="it is a directory.; give another path") as caught:
        session_files.write(tmp_path, b"")

    assert caught.value.reason == "failed"
    with pytest.raises(SessionFileError, match="it is a directory"):
        session_files.write(Path(), b"")
