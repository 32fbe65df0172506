"""What a store holds is read without an engine, and without changing a byte."""

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adapters.session_store.listing import KeptSession, list_sessions
from kernel.errors import SessionStoreError
from kernel.session_store import KeepState, KeepTurn, Kept, StoreJob
from tests.store.stores import HEADER, image_at, opened, turn_of


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Two sessions, one of them with a state."""
    with opened(tmp_path / "store") as kept:
        jobs: list[StoreJob] = [
            KeepTurn("b", turn_of(0, [1, 2, 3])),
            KeepTurn("b", turn_of(3, [4, 5])),
            KeepTurn("a", turn_of(0, [6])),
            KeepState("b", image_at(4, size=24)),
        ]
        assert kept.all(jobs) == [Kept()] * 4
    return tmp_path / "store"


def contents(directory: Path) -> dict[str, bytes]:
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def test_each_session_is_told_with_its_turns_tokens_and_state(store: Path) -> None:
    """In order of their names; and nothing is written."""
    before = contents(store)

    kept = list_sessions(store)

    assert kept.header == HEADER
    assert kept.sessions == (
        KeptSession("a", turns=1, tokens=1, state_position=None, state_bytes=0),
        KeptSession("b", turns=2, tokens=5, state_position=4, state_bytes=24),
    )
    assert contents(store) == before


def test_more_sessions_than_are_read_at_once_are_all_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each once, whatever the number of reads."""
    monkeypatch.setattr("adapters.session_store.listing._READ_AT_ONCE", 3)
    names = [f"user-{number}" for number in range(8)]
    with opened(tmp_path) as kept:
        kept.all([KeepTurn(name, turn_of(0, [1])) for name in names])

    assert [one.session_id for one in list_sessions(tmp_path).sessions] == names


def test_a_store_that_an_engine_has_open_is_left_to_it(tmp_path: Path) -> None:
    """Its engine writes on, none the worse."""
    with opened(tmp_path) as kept:
        kept.do(KeepTurn("a", turn_of(0, [1])))
        with pytest.raises(SessionStoreError) as caught:
            list_sessions(tmp_path)

        assert caught.value.reason == "in_use"
        assert kept.do(KeepTurn("a", turn_of(1, [2]))) == Kept()


def test_a_directory_without_a_store_is_named_and_stays_as_it_is(tmp_path: Path) -> None:
    """Looking must not make one."""
    with pytest.raises(SessionStoreError, match="session_store") as caught:
        list_sessions(tmp_path / "nowhere")

    assert caught.value.reason == "foreign"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("name", ["n" * 300, "a\0b", "a\ud800b"])
def test_a_name_that_no_directory_can_have_is_refused(tmp_path: Path, name: str) -> None:
    """As an engine refuses it."""
    with pytest.raises(SessionStoreError, match="session_store") as caught:
        list_sessions(tmp_path / name)

    assert caught.value.reason in {"failed", "foreign"}


def test_a_copy_that_cannot_be_written_is_read_as_it_is(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a medium that is read-only: nothing is made beside it, not even for a moment."""
    opened_as = list[str]()
    connect: Callable[..., sqlite3.Connection] = sqlite3.connect

    def watched(path: object, **options: Any) -> sqlite3.Connection:
        opened_as.append(str(path))
        return connect(str(path), **options)

    def denied(*_asked: object) -> bool:
        return False

    monkeypatch.setattr(os, "access", denied)
    monkeypatch.setattr(sqlite3, "connect", watched)

    assert [kept.session_id for kept in list_sessions(store).sessions] == ["a", "b"]
    (store / "sessions.sqlite3-wal").write_bytes(b"")
    assert [kept.session_id for kept in list_sessions(store).sessions] == ["a", "b"]
    assert ["immutable" in name for name in opened_as] == [True, False]


def test_a_directory_that_cannot_be_looked_into_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It belongs to another user."""

    def denied(*_args: object, **_names: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_file", denied)
    with pytest.raises(SessionStoreError, match="Permission denied") as caught:
        list_sessions(tmp_path)

    assert caught.value.reason == "failed"


def test_another_programs_database_is_told_as_such(store: Path) -> None:
    """As an engine would."""
    connection = sqlite3.connect(store / "sessions.sqlite3")
    connection.execute("PRAGMA application_id = 7")
    connection.close()

    with pytest.raises(SessionStoreError) as caught:
        list_sessions(store)

    assert caught.value.reason == "foreign"
