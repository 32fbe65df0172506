"""A crash at any moment costs nothing that was reported; the whole replay is a command."""

from pathlib import PurePosixPath

import attrs
import pytest

from kernel.session_store import SyncPolicy
from tests.store.crash_runs import STORE, Recording, record, replay, replay_twice
from tests.store.crash_states import CrashState, pending_at
from tests.store.operations import Acknowledged, Create, Delete, Sync, SyncDirectory, Write


@pytest.mark.parametrize("sync", ["full", "normal", "off"])
def test_no_crash_breaks_the_promise(sync: SyncPolicy) -> None:
    """Prefixes of a run and losses of what was unsynced, a sample of ``tests.store.crashes``."""
    recording = record(3, sync, groups=8, reopen_every=4)

    tally = replay(recording, 3, every=13, alone=2, subsets=1)

    assert tally.broken == []
    assert tally.states > 40


def test_no_crash_after_a_crash_breaks_the_promise() -> None:
    """Recovery itself may be cut short, and what follows it starts from odd remains."""
    recording = record(4, "full", groups=6, reopen_every=3)

    tally = replay_twice(recording, 4, crashes_each=4, every=9)

    assert tally.broken == []
    assert tally.states > 20


def test_what_is_reported_with_policy_full_has_been_synced() -> None:
    """When a report goes out, no write and no name that it needs is pending."""
    recording = record(5, "full", groups=8, reopen_every=4)
    operations = recording.operations
    reports = [n for n, operation in enumerate(operations) if isinstance(operation, Acknowledged)]
    pending = [operations[n] for end in reports for n in pending_at(operations[:end])]
    writes = [each.path for each in pending if isinstance(each, Write)]

    assert len(reports) == 8
    assert not [path for path in writes if "-wal" in path.name or "snapshots" in path.parts]


@pytest.mark.parametrize("sync", ["full", "normal", "off"])
def test_the_names_of_a_store_are_durable_when_it_is_open(sync: SyncPolicy) -> None:
    """Also where an earlier crash has left the directories and nothing in them."""
    store = PurePosixPath(STORE)
    base = CrashState(frozenset({store, store / "snapshots"}), {})
    recording = record(1, sync, groups=1, reopen_every=1, base=base)
    operations = recording.operations
    first = next(n for n, operation in enumerate(operations) if isinstance(operation, Acknowledged))
    pending = [operations[number] for number in pending_at(operations[:first], base)]

    assert not [each for each in pending if isinstance(each, Create | Delete)]


def unsynced(recording: Recording, kind: type, folder: str) -> Recording:
    """The same run on a disk that ignores some of the store's syncs."""
    kept = [
        number
        for number, operation in enumerate(recording.operations)
        if not (isinstance(operation, kind) and folder in str(operation))
    ]
    return attrs.evolve(
        recording,
        operations=[recording.operations[number] for number in kept],
        submitted=[recording.submitted[number] for number in kept],
    )


@pytest.mark.parametrize(
    ("kind", "folder"),
    [(Sync, "wal"), (Sync, "snapshots/"), (SyncDirectory, "snapshots"), (SyncDirectory, "store")],
)
def test_a_sync_that_is_left_out_is_found(kind: type, folder: str) -> None:
    """The replay sees each of the syncs that the promise rests on."""
    recording = unsynced(record(2, "full", groups=10, reopen_every=5), kind, folder)

    tally = replay(recording, 2, every=9, alone=3, subsets=2, until_broken=True)

    assert tally.broken
