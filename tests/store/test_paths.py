"""Where stores and files lie: any path that the system takes, and a typed error for all others."""

from pathlib import Path

import pytest

from adapters.session_files import session_files
from adapters.session_store.listing import list_sessions
from kernel.errors import SessionFileError, SessionStoreError
from kernel.session_store import KeepState, KeepTurn, Kept, ReadState
from kernel.state_image import StateImage
from tests.store.stores import image_at, opened, turn_of


def test_a_store_stays_where_it_is_when_the_process_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path that is relative means the directory of the moment in which it was given."""
    monkeypatch.chdir(tmp_path)
    with opened(Path("kept"), file_bytes=8) as store:
        store.do(KeepTurn("a", turn_of(0, [1, 2, 3])))
        monkeypatch.chdir("/")
        kept = store.do(KeepState("a", image_at(2, size=64)))
        read = store.do(ReadState("a"))

    assert kept == Kept()
    assert isinstance(read, StateImage)
    assert len(list((tmp_path / "kept" / "snapshots").iterdir())) == 1


@pytest.mark.parametrize("name", ["file:kept", ":memory:", "a?mode=memory#b%20c", "x y'\"ü"])
def test_a_directory_may_have_any_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Relative, too, where SQLite would read some as a URI."""
    monkeypatch.chdir(tmp_path)
    with opened(Path(name)) as store:
        assert store.do(KeepTurn("a", turn_of(0, [1]))) == Kept()

    assert (tmp_path / name / "sessions.sqlite3").is_file()
    assert [kept.session_id for kept in list_sessions(Path(name)).sessions] == ["a"]


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b", "n" * 300])
def test_a_name_that_no_directory_can_have_is_refused(tmp_path: Path, name: str) -> None:
    """By a typed error, as all else that is wrong with a store."""
    with pytest.raises(SessionStoreError) as caught, opened(tmp_path / name):
        pass

    assert caught.value.reason == "failed"


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b", "n" * 300, ""])
def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path, name: str) -> None:
    """The empty one is that of a directory."""
    path = tmp_path / name if name else Path()
    with pytest.raises(SessionFileError) as written:
        session_files.write(path, b"")
    with pytest.raises(SessionFileError) as read:
        session_files.read(path)

    assert written.value.reason == read.value.reason == "failed"
    assert list(tmp_path.iterdir()) == []


def test_a_file_may_have_the_longest_name_that_there_is(tmp_path: Path) -> None:
    """What it is called while it is written takes no room of it."""
    path = tmp_path / ("ü" * 127)
    session_files.write(path, b"whole")

    assert session_files.read(path) == b"whole"
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
