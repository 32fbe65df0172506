"""A store that isn't this engine's is refused by name, with the way out, and left as it was."""

import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from adapters.session_files import session_files
from adapters.session_store import LocalDisk, open_session_store
from adapters.session_store.schema import FORMAT_VERSION
from kernel.errors import SessionStoreError
from kernel.session_store import FileHeader, KeepTurn, Kept, StoreWorker
from tests.store.stores import HEADER, opened, turn_of

DATABASE = "sessions.sqlite3"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with one session."""
    with opened(tmp_path / "store") as kept:
        assert kept.do(KeepTurn("a", turn_of(0, [1, 2, 3]))) == Kept()
    return tmp_path / "store"


def contents(directory: Path) -> dict[str, bytes]:
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


@pytest.mark.parametrize(
    ("header", "reason", "says"),
    [
        (attrs.evolve(HEADER, fingerprint="f2", model="other"), "model", ["tiny", "other", "f2"]),
        (attrs.evolve(HEADER, dtype="float64"), "dtype", ["float32", "float64"]),
        (attrs.evolve(HEADER, state_dtype="bfloat16"), "dtype", ["state dtype", "bfloat16"]),
    ],
)
def test_a_store_of_another_model_or_dtype_is_refused_by_name(
    store: Path, header: FileHeader, reason: str, says: list[str]
) -> None:
    """Its states would be noise to this model."""
    before = contents(store)

    with pytest.raises(SessionStoreError) as caught:
        open_session_store(store, header)

    assert caught.value.reason == reason
    assert caught.value.path == str(store)
    assert all(word in str(caught.value) for word in [*says, str(store), "another directory"])
    assert contents(store) == before


def test_a_model_may_have_moved(store: Path) -> None:
    """The fingerprint says whose states these are; a name is a path, often enough."""
    with opened(store, header=attrs.evolve(HEADER, model="/elsewhere/tiny")) as kept:
        assert kept.worker.holds("a")


def edited(sql: str) -> Callable[[Path], object]:
    def edit(store: Path) -> None:
        connection = sqlite3.connect(store / DATABASE)
        connection.executescript(sql)
        connection.close()

    return edit


def overwritten(offset: int, data: bytes) -> Callable[[Path], object]:
    def overwrite(store: Path) -> None:
        with (store / DATABASE).open("r+b") as file:
            file.seek(offset)
            file.write(data)

    return overwrite


@pytest.mark.parametrize(
    ("damage", "reason", "says"),
    [
        (edited(f"PRAGMA user_version = {FORMAT_VERSION + 1}"), "version", "version 2"),
        (edited("PRAGMA application_id = 7"), "foreign", "another program's"),
        (edited("DELETE FROM header WHERE name = 'dtype'"), "damaged", "header is not whole"),
        (edited("DROP TABLE totals"), "damaged", "has no totals"),
        (edited("DROP INDEX snapshots_by_use"), "damaged", "has no snapshots_by_use"),
        (edited("DELETE FROM totals"), "damaged", "totals has 0 rows"),
        (edited("ALTER TABLE turns RENAME COLUMN kind TO kinx"), "damaged", "has no turns"),
        (edited('ALTER TABLE turns RENAME COLUMN kind TO "k\xfc"'), "damaged", "has no turns"),
        (edited("UPDATE sessions SET name = CAST(x'ff' AS TEXT)"), "damaged", "UTF-8"),
        (overwritten(0, b"not a database"), "damaged", "file is not a database"),
        (overwritten(100, b"\xff" * 3000), "damaged", "malformed"),
    ],
)
def test_a_store_that_is_newer_foreign_or_damaged_is_refused_by_name(
    store: Path, damage: Callable[[Path], object], reason: str, says: str
) -> None:
    """Nothing is guessed, and nothing is made anew over what may yet be saved."""
    damage(store)
    before = contents(store)

    with pytest.raises(SessionStoreError) as caught:
        open_session_store(store, HEADER)

    assert (caught.value.reason, says in str(caught.value)) == (reason, True), caught.value
    assert contents(store)[DATABASE] == before[DATABASE]


def test_a_store_in_use_is_refused_and_free_when_its_engine_has_closed(store: Path) -> None:
    """Two engines on one log would each overwrite what the other has kept."""
    with opened(store) as first:
        with pytest.raises(SessionStoreError) as caught:
            open_session_store(store, HEADER)

        assert caught.value.reason == "in_use"
        assert "close that one" in str(caught.value)
        assert first.do(KeepTurn("a", turn_of(3, [4]))) == Kept()
    with opened(store) as second:
        assert second.worker.holds("a")


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    """The error is typed; a bare OSError from deep inside would not say whose directory it was."""
    (tmp_path / "file").write_text("")

    with pytest.raises(SessionStoreError) as caught:
        open_session_store(tmp_path / "file" / "store", HEADER)

    assert caught.value.reason == "failed"
    assert "can be written" in str(caught.value)


def test_a_disk_that_is_full_refuses_by_name(tmp_path: Path) -> None:
    """Also before there is any store."""

    class FullDisk(LocalDisk):
        def make_directory(self, path: Path, /) -> None:
            raise OSError(28, "No space left on device")

    with pytest.raises(SessionStoreError) as caught:
        open_session_store(tmp_path / "store", HEADER, disk=FullDisk())

    assert caught.value.reason == "full"


def test_no_thread_and_no_lock_stays_of_a_refused_store(store: Path) -> None:
    """An engine that is refused may be opened again with other settings, in the same process."""
    before = threading.active_count()
    for _ in range(3):
        with pytest.raises(SessionStoreError):
            open_session_store(store, attrs.evolve(HEADER, dtype="float16"))

    assert threading.active_count() == before
    with opened(store) as kept:
        assert kept.worker.holds("a")


def test_what_crashes_leave_beside_the_database_is_removed(store: Path) -> None:
    """Files that no row names: unfinished ones, and ones whose transaction never came."""
    for name in ("7-9", "7-9.00ff.partial"):
        (store / "snapshots" / name).write_bytes(b"left")

    with opened(store):
        assert list((store / "snapshots").iterdir()) == []


@pytest.mark.parametrize(
    "name", [b"\xff stray", b"holiday.jpg", b"2024-01", b"7-9.txt", b"a.partial", b"7-9\n"]
)
def test_a_file_that_is_none_of_ours_keeps_no_store_closed_and_stays(
    tmp_path: Path, name: bytes
) -> None:
    """A directory that somebody gives may have had its own before there was a store in it."""
    stray = tmp_path / "snapshots" / os.fsdecode(name)
    stray.parent.mkdir()
    stray.write_bytes(b"somebody's")

    with opened(tmp_path) as kept:
        assert kept.do(KeepTurn("a", turn_of(0, [1]))) == Kept()
    assert stray.read_bytes() == b"somebody's"


def test_the_entry_point_opens_the_same_store(store: Path) -> None:
    """What the kernel finds is an adapter of its protocol."""
    worker: StoreWorker = session_files.open_store(store, HEADER, sync="full", max_state_bytes=None)
    try:
        assert worker.holds("a")
    finally:
        worker.stop()
        assert worker.join(10)
