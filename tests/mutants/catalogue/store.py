"""Bugs in the store on disk: what is durable, what is checked, and what fits together."""

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_DISK = "adapters/session_store/disk.py"
_LOGS = "adapters/session_store/logs.py"
_SNAPSHOTS = "adapters/session_store/snapshots.py"
_TRANSACTION = "adapters/session_store/transaction.py"

_JOBS = "tests/store/test_jobs.py"
_DAMAGE = "tests/store/test_damage.py"
_FULL = "tests/store/test_full_disks.py"

MUTANTS: list[Mutant] = [
    Mutant(
        "snapshot-beyond-the-cut-log",
        "A snapshot goes with the log that it is of.",
        _LOGS,
        "        self.snapshots.drop_beyond(number, length - 1)\n",
        "        self.snapshots.drop_beyond(number, length)\n",
        rule="position <= length - 1",
        near=(_JOBS,),
    ),
    Mutant(
        "snapshot-of-a-longer-log",
        "A snapshot beyond the log is not kept.",
        _TRANSACTION,
        "        if not 1 <= job.image.position < length:\n",
        "        if not 1 <= job.image.position:\n",
        rule="position <= length - 1",
        near=(_JOBS,),
    ),
    Mutant(
        "missing-turn-skipped",
        "A log with a hole in it is damaged, and not a shorter log.",
        _LOGS,
        "            if turn.start != end:\n",
        "            if turn.start < end:\n",
        rule="damage is told by name",
        near=(_DAMAGE,),
    ),
    Mutant(
        "checksum-not-looked-at",
        "A snapshot whose bytes have changed is damaged.",
        _SNAPSHOTS,
        "        if crc != image_checksum(",
        "        if crc is image_checksum and image_checksum(",
        rule="damage is told by name",
        near=(_DAMAGE,),
    ),
    Mutant(
        "failed-job-half-done",
        "A job that fails leaves nothing behind.",
        _TRANSACTION,
        '            database.execute("ROLLBACK TO job")\n',
        "",
        rule="whole or not at all",
        near=("tests/store/test_against_model.py", "tests/store/test_crashes.py"),
    ),
    Mutant(
        "full-disk-fails-the-neighbours",
        "On a full disk every job is tried alone: what fits is kept.",
        _TRANSACTION,
        "            if len(jobs) == 1:\n                return [_fault_of(lost.cause)]\n",
        "            return [_fault_of(lost.cause) for _ in jobs]\n",
        rule="a job fails alone",
        near=(_FULL,),
    ),
    Mutant(
        "old-snapshot-removed-too-early",
        "The file of an old snapshot stays until the commit that no longer names it.",
        _SNAPSHOTS,
        "                unnamed = (*self.changes.unnamed, file)\n"
        "                self.changes = attrs.evolve(self.changes, unnamed=unnamed)\n",
        "                self._remove([file])\n",
        rule="no crash breaks the promise",
        near=(_FULL, "tests/store/test_crashes.py::test_no_crash_breaks_the_promise"),
    ),
    Mutant(
        "newest-snapshot-evicted",
        "Over the budget the snapshot used longest ago goes first.",
        _SNAPSHOTS,
        "ORDER BY used LIMIT 1",
        "ORDER BY used DESC LIMIT 1",
        rule="least recently used goes first",
        near=(_JOBS,),
    ),
    Mutant(
        "commit-not-synced",
        "With the policy `full` a report follows the sync.",
        "adapters/session_store/schema.py",
        '"full": "FULL"',
        '"full": "NORMAL"',
        rule="acknowledged is kept",
        near=(_JOBS, "tests/store/test_crashes.py"),
    ),
    Mutant(
        "name-not-synced",
        "A file's new name is durable before anything names it.",
        _DISK,
        "    if sync:\n        disk.sync_directory(path.parent)",
        "    if False:\n        disk.sync_directory(path.parent)",
        rule="no crash breaks the promise",
        near=("tests/store/test_disk.py",),
    ),
    Mutant(
        "orphans-stay-for-ever",
        "What a crash leaves beside the database is removed at the next start.",
        "adapters/session_store/opening.py",
        "    committer.snapshots.remove_orphans()\n",
        "",
        rule="nothing grows without bound",
        near=("tests/store/test_opening.py",),
    ),
]
