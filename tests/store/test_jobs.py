"""Jobs that fail fail alone; each is reported once; groups share a commit."""

import gc
import threading
import time
import weakref
from pathlib import Path

import pytest

from adapters.session_store.names import Names
from kernel.session_store import (
    CutLog,
    KeepFacts,
    KeepState,
    KeepTurn,
    Kept,
    ReadSession,
    ReadState,
    RemoveSession,
    SessionRecord,
    StoreFault,
    StoreJob,
    StoreReport,
)
from tests.store.operations import Operation, Sync
from tests.store.recording import RecordingDisk, Tape
from tests.store.stores import image_at, opened, turn_of

GOOD = KeepTurn("good", turn_of(0, [1, 2, 3]))


def reason_of(report: StoreReport) -> str | None:
    return report.reason if isinstance(report, StoreFault) else None


@pytest.mark.parametrize(
    ("job", "reason", "says"),
    [
        (KeepTurn("good", turn_of(9, [1])), "refused", "starts at 9"),
        (KeepTurn("new", turn_of(1, [1])), "refused", "0 tokens"),
        (KeepTurn("good", turn_of(-1, [1])), "refused", "starts at -1"),
        (KeepTurn("new", turn_of(0, [1], bad=object())), "refused", "JSON"),
        (KeepTurn("", turn_of(0, [1])), "refused", "no name"),
        (KeepTurn("\ud800", turn_of(0, [1])), "refused", "no name"),
        (KeepFacts("new", {"bad": {1, 2}}), "refused", "JSON"),
        (CutLog("good", -1), "refused", "-1"),
        (CutLog("new", 0), "missing", "'new'"),
        (KeepState("good", image_at(3)), "refused", "position 3"),
        (KeepState("good", image_at(0)), "refused", "position 0"),
        (KeepState("new", image_at(1)), "missing", "'new'"),
        (ReadSession("new"), "missing", "'new'"),
        (ReadState("new"), "missing", "'new'"),
        (ReadState("good"), "missing", "no snapshot"),
    ],
)
def test_a_job_that_fails_fails_alone_and_leaves_nothing(
    tmp_path: Path, job: StoreJob, reason: str, says: str
) -> None:
    """Its neighbours in the same commit are kept."""
    neighbour = KeepTurn("neighbour", turn_of(0, [7]))
    with opened(tmp_path) as store:
        reports = store.all([GOOD, job, neighbour])
        report = reports[1]

        assert (reports[0], reports[2]) == (Kept(), Kept())
        assert isinstance(report, StoreFault)
        assert (report.reason, says in report.why) == (reason, True), report
        assert list(store.worker.session_ids()) == ["good", "neighbour"]
        assert not store.worker.holds("new")
        assert store.usage.sessions == 2


def test_jobs_that_gather_share_one_commit(tmp_path: Path) -> None:
    """A hundred turns at once wait for a few syncs, not for a hundred."""
    tape = Tape(tmp_path)
    with opened(tmp_path, sync="full", disk=RecordingDisk(tape)) as store:
        before = len(tape.operations)
        store.all([KeepTurn(f"s{number}", turn_of(0, [1])) for number in range(100)])
        syncs = [each for each in tape.operations[before:] if isinstance(each, Sync)]

    assert 1 <= len(syncs) <= 10


def test_policies_that_do_not_promise_it_do_not_sync_each_commit(tmp_path: Path) -> None:
    """What is left are the syncs that keep the database whole."""
    tape = Tape(tmp_path)
    with opened(tmp_path, sync="normal", disk=RecordingDisk(tape)) as store:
        store.do(GOOD)
        before = len(tape.operations)
        for number in range(20):
            store.do(KeepTurn("good", turn_of(3 + number, [1])))

        assert not [each for each in tape.operations[before:] if isinstance(each, Sync)]


def test_a_stopped_store_does_what_is_queued_and_refuses_what_comes_later(tmp_path: Path) -> None:
    """Nobody waits for a report that never comes."""
    reports = list[StoreReport]()
    with opened(tmp_path) as store:
        for number in range(50):
            store.worker.submit(KeepTurn("a", turn_of(number, [1])), reports.append)
        store.worker.stop()
        store.worker.stop()
        store.worker.submit(KeepTurn("a", turn_of(50, [1])), reports.append)
        assert store.worker.join(10)
        assert store.worker.join(10)

        assert [reason_of(report) for report in reports].count("stopped") == 1
        assert reports.count(Kept()) == 50
        assert not store.worker.holds("a")
        assert list(store.worker.session_ids()) == []
    with opened(tmp_path) as again:
        record = again.do(ReadSession("a"))

    assert isinstance(record, SessionRecord)
    assert record.log_len == 50


def test_holds_counts_the_jobs_that_are_queued(tmp_path: Path) -> None:
    """A session that was just removed can be opened again at once, and one just opened is there."""
    gate, waiting = threading.Event(), threading.Event()

    def hold(_report: StoreReport) -> None:
        waiting.set()
        gate.wait(10)

    with opened(tmp_path) as store:
        store.do(GOOD)
        store.worker.submit(ReadSession("good"), hold)
        assert waiting.wait(10)
        ended = threading.Event()
        store.worker.submit(KeepTurn("new", turn_of(0, [1])), lambda _report: None)
        store.worker.submit(KeepTurn("bad", turn_of(5, [1])), lambda _report: None)
        store.worker.submit(RemoveSession("good"), lambda _report: ended.set())
        queued = [store.worker.holds(name) for name in ("new", "bad", "good")]
        listed = list(store.worker.session_ids())
        gate.set()
        assert ended.wait(10)
        done = [store.worker.holds(name) for name in ("new", "bad", "good")]

        assert queued == [True, True, False]
        assert listed == ["good"]
        assert done == [True, False, False]
        assert not store.worker.holds("\ud800")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_caller_that_raises_costs_nobody_else_the_report(tmp_path: Path) -> None:
    """The event loop of one may have closed; the store is everyone's."""

    def raises(_report: StoreReport) -> None:
        raise RuntimeError("the loop is closed")

    with opened(tmp_path) as store:
        store.worker.submit(GOOD, raises)

        assert isinstance(store.do(ReadSession("good")), SessionRecord)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_memory_that_runs_out_for_a_name_costs_nobody_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job is on the disk; that it was queued says the same of the session."""

    def fails(*_args: object) -> None:
        raise MemoryError

    with opened(tmp_path) as store:
        with monkeypatch.context() as patch:
            patch.setattr(Names, "reported", fails)
            reports = store.all([GOOD, KeepTurn("other", turn_of(0, [1]))])

        assert reports == [Kept(), Kept()]
        assert store.worker.holds("good")
        assert isinstance(store.do(ReadSession("good")), SessionRecord)


def test_an_image_does_not_outlive_its_report_in_the_thread(tmp_path: Path) -> None:
    """It may be gigabytes; the thread waits long for the next job."""
    image = image_at(2)
    kept = weakref.ref(image)
    with opened(tmp_path) as store:
        store.do(GOOD)
        store.do(KeepState("good", image))
        del image
        deadline_s = time.monotonic() + 5
        while kept() is not None and time.monotonic() < deadline_s:
            time.sleep(0.001)
            gc.collect()

        assert kept() is None


def test_a_large_snapshot_is_a_file_and_a_small_one_is_not(tmp_path: Path) -> None:
    """One that replaces another or is dropped takes its file with it."""
    files = tmp_path / "snapshots"
    with opened(tmp_path, file_bytes=1000) as store:
        store.do(GOOD)
        counts = list[int]()
        for size in (1000, 1001, 2000, 16):
            store.do(KeepState("good", image_at(2, size=size)))
            counts.append(len(list(files.iterdir())))
        store.all([KeepState("good", image_at(2, size=5000)), RemoveSession("good")])

        assert counts == [0, 1, 1, 0]
        assert list(files.iterdir()) == []
        assert store.usage.state_bytes == 0


@pytest.mark.parametrize(("length", "stays"), [(6, True), (5, True), (4, False), (3, False)])
@pytest.mark.parametrize("cuts_with_a_turn", [False, True])
def test_a_snapshot_goes_with_the_log_that_it_is_of(
    tmp_path: Path, length: int, stays: bool, cuts_with_a_turn: bool
) -> None:
    """One at position 4 needs a log of 5: the last token of a log is in no state yet."""
    cut = KeepTurn("good", turn_of(length, [9])) if cuts_with_a_turn else CutLog("good", length)
    with opened(tmp_path) as store:
        store.all([GOOD, KeepTurn("good", turn_of(3, [4, 5, 6])), KeepState("good", image_at(4))])
        store.do(cut)
        record = store.do(ReadSession("good"))

        assert isinstance(record, SessionRecord)
        assert record.state_position == (4 if stays else None)
        assert store.usage.snapshots == int(stays)
        assert reason_of(store.do(ReadState("good"))) == (None if stays else "missing")


def test_a_turn_without_tokens_gives_way_to_the_next(tmp_path: Path) -> None:
    """A turn that was interrupted before its first token, say; the log is no longer for it."""
    empty = turn_of(3, [], note="empty")
    with opened(tmp_path) as store:
        store.all([GOOD, KeepTurn("good", empty)])
        kept = store.do(ReadSession("good"))
        report = store.do(KeepTurn("good", turn_of(3, [4])))
        record = store.do(ReadSession("good"))

        assert isinstance(kept, SessionRecord)
        assert isinstance(record, SessionRecord)
        assert list(kept.turns) == [GOOD.turn, empty]
        assert report == Kept()
        assert list(record.turns) == [GOOD.turn, turn_of(3, [4])]
        assert store.usage.log_bytes == 16


def test_snapshots_over_the_budget_go_the_least_recently_used_first(tmp_path: Path) -> None:
    """Reading counts as use, also across a restart; logs never go."""
    names = ["a", "b", "c", "d"]
    with opened(tmp_path, max_state_bytes=300) as store:
        for name in names:
            store.do(KeepTurn(name, turn_of(0, [1, 2, 3])))
        for name in names[:3]:
            store.do(KeepState(name, image_at(2, size=100)))
        store.do(ReadState("a"))
    with opened(tmp_path, max_state_bytes=300) as store:
        kept = store.do(KeepState("d", image_at(2, size=100)))
        too_large = store.do(KeepState("d", image_at(2, size=304)))
        states = [reason_of(store.do(ReadState(name))) for name in names]
        logs = [store.do(ReadSession(name)) for name in names]

        assert kept == Kept()
        assert reason_of(too_large) == "full"
        assert states == [None, "missing", None, None]
        assert all(isinstance(log, SessionRecord) and log.log_len == 3 for log in logs)
        assert store.usage.state_bytes == 300


def test_holds_and_usage_do_not_wait_for_the_disk(tmp_path: Path) -> None:
    """They are called on the event loop, while a commit may take as long as the disk likes."""
    tape = Tape(tmp_path)
    syncing, goes_on = threading.Event(), threading.Event()

    def slow(operation: Operation) -> None:
        if isinstance(operation, Sync):
            syncing.set()
            goes_on.wait(10)

    with opened(tmp_path, sync="full", disk=RecordingDisk(tape)) as store:
        store.do(GOOD)
        tape.fault = slow
        store.worker.submit(KeepTurn("good", turn_of(3, [1])), lambda _report: None)
        assert syncing.wait(10)
        begun = time.perf_counter()
        answers = (
            store.worker.holds("good"),
            store.worker.holds("bad"),
            list(store.worker.session_ids()),
            store.worker.usage().sessions,
        )
        took_s = time.perf_counter() - begun
        was_syncing = not goes_on.is_set()
        goes_on.set()

    assert answers == (True, False, ["good"], 1)
    assert was_syncing
    assert took_s < 5
