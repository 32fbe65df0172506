"""A store on a full disk can forget, and what was forgotten makes room in it."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from adapters.session_store import LocalDisk
from adapters.session_store.database import SqliteDatabase
from adapters.session_store.schema import reserve_bytes, set_policies
from kernel.session_store import (
    CutLog,
    DropState,
    KeepFacts,
    KeepState,
    KeepTurn,
    Kept,
    ReadSession,
    RemoveSession,
    SessionRecord,
    StoreFault,
    StoreJob,
    SyncPolicy,
)
from tests.store.stores import OpenStore, image_at, opened, turn_of

RESERVE = reserve_bytes("normal")
LARGE = image_at(2, size=300_000)
"""A file of its own."""


@attrs.define(eq=False)
class FillingDisk(LocalDisk):
    """Says what it is told of the room that is left."""

    free: int = 1 << 40

    def free_bytes(self, path: Path, /) -> int:
        assert path.is_dir()
        return self.free


@pytest.fixture
def disk() -> FillingDisk:
    return FillingDisk()


@pytest.fixture
def store(tmp_path: Path, disk: FillingDisk) -> Iterator[OpenStore]:
    """With one session of three pages, its facts and its state."""
    with opened(tmp_path, disk=disk) as store:
        jobs: list[StoreJob] = [
            KeepTurn("old", turn_of(0, range(3000))),
            KeepFacts("old", {"a": 1}),
            KeepState("old", image_at(2)),
        ]
        assert store.all(jobs) == [Kept()] * 3
        yield store


@pytest.mark.parametrize(
    "job",
    [
        KeepTurn("new", turn_of(0, [1, 2, 3])),
        KeepTurn("old", turn_of(3000, [1])),
        KeepFacts("old", {"b": 2}),
        KeepState("old", image_at(3)),
        KeepState("old", LARGE),
    ],
)
def test_what_adds_is_refused_while_the_reserve_is_all_that_is_left(
    store: OpenStore, disk: FillingDisk, job: StoreJob
) -> None:
    """By numbers, and what was kept stays; with room it is kept."""
    before = store.usage
    disk.free = RESERVE - 1
    report = store.do(job)

    assert isinstance(report, StoreFault)
    assert report.reason == "full"
    assert "7.81 MiB are kept" in report.why
    assert store.usage == before
    disk.free = RESERVE + (1 << 20)
    assert store.do(job) == Kept()


@pytest.mark.parametrize("job", [CutLog("old", 5), DropState("old"), RemoveSession("old")])
def test_what_removes_goes_on_to_the_last_byte(
    store: OpenStore, disk: FillingDisk, job: StoreJob
) -> None:
    """So do reads."""
    disk.free = 0

    assert isinstance(store.do(ReadSession("old")), SessionRecord)
    assert store.do(job) == Kept()


def test_pages_that_were_freed_are_room_for_turns_and_not_for_files(
    store: OpenStore, disk: FillingDisk
) -> None:
    """The database stays as long as it is, and is filled anew; a large state needs the disk."""
    disk.free = RESERVE - 1
    assert store.do(RemoveSession("old")) == Kept()

    assert store.do(KeepTurn("new", turn_of(0, range(1000)))) == Kept()
    reports = [store.do(KeepState("new", LARGE)), store.do(KeepTurn("b", turn_of(0, range(9000))))]
    assert [report.reason for report in reports if isinstance(report, StoreFault)] == ["full"] * 2


def test_jobs_of_one_commit_share_what_is_left(store: OpenStore, disk: FillingDisk) -> None:
    """Whoever comes first has it."""
    disk.free = RESERVE + 50_000
    reports = store.all([KeepTurn(name, turn_of(0, range(5000))) for name in "abcd"])

    assert [isinstance(report, Kept) for report in reports] == [True, True, False, False]


def test_a_disk_that_cannot_say_is_written_to(store: OpenStore, disk: FillingDisk) -> None:
    """The write itself may fail, or not."""

    def fails(_path: Path) -> int:
        raise OSError(5, "Input/output error")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk, "free_bytes", fails)
        assert store.do(KeepTurn("new", turn_of(0, [1]))) == Kept()


@pytest.mark.parametrize("sync", ["full", "normal", "off"])
def test_the_reserve_holds_the_journal_and_what_it_adds_to_the_database(
    tmp_path: Path, sync: SyncPolicy
) -> None:
    """At the length at which the one goes into the other."""
    database = SqliteDatabase(tmp_path / "a")
    set_policies(database, sync)
    [(pages,)] = database.execute("PRAGMA wal_autocheckpoint")
    [(page_bytes,)] = database.execute("PRAGMA page_size")
    database.close()

    assert reserve_bytes(sync) == 2 * pages * page_bytes


def test_the_local_disk_knows_what_it_has_left(tmp_path: Path) -> None:
    """As the system says."""
    free = LocalDisk().free_bytes(tmp_path)

    assert 0 < free <= shutil.disk_usage(tmp_path).total
