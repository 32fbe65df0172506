"""A disk that is full or fails costs the jobs that need it, and leaves nothing half done."""

import threading
from collections.abc import Callable
from pathlib import Path

from adapters.session_store import DatabaseFault, LocalDisk
from adapters.session_store.database import Database
from kernel.session_store import (
    KeepState,
    KeepTurn,
    Kept,
    ReadSession,
    ReadState,
    SessionRecord,
    StoreFault,
    StoreReport,
)
from kernel.state_image import StateImage
from tests.store.flawed import FlawedDisk
from tests.store.operations import Operation, Sync, Write
from tests.store.recording import RecordingDisk, Tape
from tests.store.stores import image_at, opened, turn_of

GOOD = KeepTurn("good", turn_of(0, [1, 2, 3]))


def reason_of(report: StoreReport) -> str | None:
    return report.reason if isinstance(report, StoreFault) else None


class SmallDisk(LocalDisk):
    """A database of a few pages is full."""

    def open_database(self, path: Path, /) -> Database:
        database = super().open_database(path)
        database.execute("PRAGMA max_page_count = 24")
        return database


def test_a_job_that_does_not_fit_leaves_room_for_its_neighbours(tmp_path: Path) -> None:
    """A large turn in a full store costs its own session, and nobody else's."""
    large = KeepTurn("large", turn_of(0, range(50_000)))
    small = [KeepTurn(f"small {number}", turn_of(0, [1])) for number in range(3)]

    with opened(tmp_path, disk=SmallDisk()) as store:
        reports = store.all([small[0], large, small[1]])
        later = store.do(small[2])

        assert [reason_of(report) for report in reports] == [None, "full", None]
        assert later == Kept()
        assert list(store.worker.session_ids()) == ["small 0", "small 1", "small 2"]


def failing(error: Callable[[], Exception], when: Callable[[Operation], bool]) -> Tape:
    def fault(operation: Operation) -> None:
        if when(operation):
            raise error()

    return Tape(Path("/"), fault=fault)


def is_large(operation: Operation) -> bool:
    return isinstance(operation, Write) and len(operation.data) > 100_000


def test_a_file_that_does_not_fit_is_told_and_nothing_of_it_stays(tmp_path: Path) -> None:
    """The snapshot before it stays; so do the neighbours."""
    tape = Tape(tmp_path)
    with opened(tmp_path, disk=RecordingDisk(tape)) as store:
        store.all([GOOD, KeepState("good", image_at(1, size=300_000))])
        tape.fault = failing(lambda: OSError(28, "No space left"), is_large).fault
        reports = store.all(
            [
                KeepState("good", image_at(2, size=400_000)),
                KeepTurn("neighbour", turn_of(0, [7])),
            ]
        )
        kept = store.do(ReadState("good"))

        assert [reason_of(report) for report in reports] == ["full", None]
        assert isinstance(kept, StateImage)
        assert (kept.position, kept.nbytes) == (1, 300_000)
        assert len(list((tmp_path / "snapshots").iterdir())) == 1
        assert store.usage.state_bytes == 300_000


def test_a_disk_that_is_full_when_all_is_committed_fails_what_does_not_fit(tmp_path: Path) -> None:
    """The disk fills up while the journal is written; each job is then tried alone."""
    import apsw

    room = 100_000
    tape = Tape(tmp_path)

    def fault(operation: Operation) -> None:
        if isinstance(operation, Write) and operation.offset + len(operation.data) > room:
            raise apsw.FullError("database or disk is full")

    with opened(tmp_path, disk=RecordingDisk(tape)) as store:
        store.do(GOOD)
        tape.fault = fault
        reports = store.all(
            [
                KeepTurn("one", turn_of(0, [1])),
                KeepTurn("large", turn_of(0, [2], text="x" * 200_000)),
                KeepTurn("good", turn_of(3, [4])),
            ]
        )
        tape.fault = lambda _operation: None
        after = store.do(KeepTurn("large", turn_of(0, [2], text="x" * 200_000)))

        assert [reason_of(report) for report in reports] == [None, "full", None], reports
        assert after == Kept()
        assert store.usage.sessions == 3


def test_a_sync_that_fails_is_told_and_the_jobs_can_be_submitted_again(tmp_path: Path) -> None:
    """What was not synced is not reported as kept."""
    import apsw

    tape = Tape(tmp_path)

    def fault(operation: Operation) -> None:
        if isinstance(operation, Sync):
            raise apsw.IOError("disk I/O error")

    with opened(tmp_path, sync="full", disk=RecordingDisk(tape)) as store:
        store.do(GOOD)
        tape.fault = fault
        failed = store.do(KeepTurn("good", turn_of(3, [4])))
        tape.fault = lambda _operation: None
        again = store.do(KeepTurn("good", turn_of(3, [4])))
        record = store.do(ReadSession("good"))

        assert reason_of(failed) == "failed"
        assert again == Kept()
        assert isinstance(record, SessionRecord)
        assert record.log_len == 4


def test_a_file_whose_row_does_not_fit_goes_with_the_job(tmp_path: Path) -> None:
    """It was whole and durable, and nothing will ever name it."""
    fault = DatabaseFault("database or disk is full", "full")
    disk = FlawedDisk(fault, lambda sql, _values: sql.startswith("INSERT INTO snapshots"))

    with opened(tmp_path, disk=disk) as store:
        reports = store.all([GOOD, KeepState("good", image_at(1, size=300_000))])
        usage = store.usage

        assert [reason_of(report) for report in reports] == [None, "full"]
        assert list((tmp_path / "snapshots").iterdir()) == []
        assert (usage.snapshots, usage.state_bytes) == (0, 0)


def test_files_of_a_commit_that_fails_go_and_old_ones_stay(tmp_path: Path) -> None:
    """Until the commit, the old snapshot is the one that the store has."""
    fault = DatabaseFault("database or disk is full", "full")
    is_failing = threading.Event()
    disk = FlawedDisk(fault, lambda sql, _values: sql == "COMMIT" and is_failing.is_set())

    with opened(tmp_path, disk=disk) as store:
        store.all([GOOD, KeepState("good", image_at(1, size=300_000))])
        is_failing.set()
        failed = store.do(KeepState("good", image_at(2, size=400_000)))
        is_failing.clear()
        kept = store.do(ReadState("good"))

        assert reason_of(failed) == "full"
        assert isinstance(kept, StateImage)
        assert kept.nbytes == 300_000
        assert len(list((tmp_path / "snapshots").iterdir())) == 1
        assert (store.usage.snapshots, store.usage.state_bytes) == (1, 300_000)
