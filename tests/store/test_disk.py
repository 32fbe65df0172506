"""The local disk does what the recorded one is recorded as doing."""

import errno
import fcntl
import os
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from adapters.session_store import LocalDisk, disk
from adapters.session_store.disk import write_whole


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Name and size of each file or directory at the moment when it was synced."""
    seen = list[tuple[str, int]]()
    real = os.fsync

    def sync(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        seen.append((path.name, 0 if path.is_dir() else os.fstat(descriptor).st_size))
        real(descriptor)

    monkeypatch.setattr(disk, "_sync", sync)
    return seen


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="names of open files are read there")
def test_a_whole_file_is_synced_before_its_name(
    tmp_path: Path, synced: list[tuple[str, int]]
) -> None:
    """All of it has left the process when it is synced; then its directory is."""
    write_whole(LocalDisk(), tmp_path / "a", [b"12", b"345"])
    (file, size), directory = synced

    assert (file.startswith("a."), size) == (True, 5)
    assert directory == (tmp_path.name, 0)
    assert (tmp_path / "a").read_bytes() == b"12345"


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="names of open files are read there")
def test_a_directory_that_is_made_is_synced_into_the_one_above(
    tmp_path: Path, synced: list[tuple[str, int]]
) -> None:
    """A store in a directory that a crash undoes would be gone with it."""
    LocalDisk().make_directory(tmp_path / "a" / "b")

    assert [name for name, _ in synced] == [tmp_path.name, "a"]


def test_what_need_not_be_durable_is_not_synced(
    tmp_path: Path, synced: list[tuple[str, int]]
) -> None:
    """Policy ``off`` asks for no sync of a file."""
    write_whole(LocalDisk(), tmp_path / "a", [b"12"], sync=False)

    assert synced == []


def as_on_macos(monkeypatch: pytest.MonkeyPatch, number: int) -> ModuleType:
    """The module as it is there, on a drive that answers a full sync with this error."""

    def full_sync(descriptor: int, command: int) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", full_sync)
    spec = spec_from_file_location("disk_of_macos", str(disk.__file__))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_drive_that_knows_no_full_sync_is_synced_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else no store could lie on one; an error of the drive itself is told."""
    synced = list[int]()
    monkeypatch.setattr(os, "fsync", synced.append)

    as_on_macos(monkeypatch, errno.ENOTSUP).LocalDisk().sync_directory(tmp_path)
    assert len(synced) == 1
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        as_on_macos(monkeypatch, errno.EIO).LocalDisk().sync_directory(tmp_path)
    assert len(synced) == 1
