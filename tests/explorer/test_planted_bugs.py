"""The explorer finds planted bugs, each by a short trace, in the world that is there for it."""

import json
import os
import subprocess
import sys

import pytest

from tests.mutants.catalogue.kept_worlds import MUTANTS
from tests.mutants.mutant import Mutant, mutated_copy

SLOT_FREED_IN_FLIGHT = Mutant(
    id="explorer-slot-freed-in-flight",
    breaks="What a step may write can't be given back.",
    path="ownership/stepping.py",
    old="        record.custodian = DEVICE\n        record.step = info\n",
    new="        book.free_slots.append(record.slot)  # type: ignore[arg-type]\n",
)
REPLY_DROPPED = Mutant(
    id="explorer-reply-dropped",
    breaks="Each caller of an interrupt is answered.",
    path="kernel/sessions/active_turn.py",
    old="                reply.answer(end.kept)",
    new="                pass",
)
ABORTED_TURN_COMMITTED = Mutant(
    id="explorer-aborted-turn-committed",
    breaks="What arrives for a cancelled turn is rolled back, not committed with the next.",
    path="kernel/sessions/turn_ends.py",
    old="        if active is None or not self.is_active(message.turn):\n"
    "            self.roll_back_late(message.claim)",
    new="        if active is None:\n            self.roll_back_late(message.claim)",
)
REST_WAKES_NOBODY = Mutant(
    id="explorer-rest-wakes-nobody",
    breaks="Every transition that makes a move legal wakes the scheduler.",
    path="kernel/scheduling/scheduler.py",
    old="            case Rested():\n                pass\n",
    new="            case Rested():\n                return\n",
)
DEATH_NOT_TOLD = Mutant(
    id="explorer-death-not-told",
    breaks="Each actor with open business with a dead one is told.",
    path="kernel/actors/dispatcher.py",
    old="                peer.mailbox.post(down, SUPERVISOR)",
    new="                pass",
)


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("mutant", "world", "at_most"),
    [
        (SLOT_FREED_IN_FLIGHT, "pair-2", 8),
        (REPLY_DROPPED, "later-moves-2", 12),
        (ABORTED_TURN_COMMITTED, "later-moves-2", 25),
        (REST_WAKES_NOBODY, "pair-1", 40),
        (DEATH_NOT_TOLD, "faults-2", 12),
    ],
    ids=lambda value: value.id if isinstance(value, Mutant) else None,
)
def test_a_planted_bug_is_found_by_a_short_trace(mutant: Mutant, world: str, at_most: int) -> None:
    """Breadth first, in a small world: what is wrong can be read off a few lines."""
    _is_found(mutant, world, at_most)


def _is_found(mutant: Mutant, world: str, at_most: int) -> None:
    with mutated_copy(mutant) as root:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "kernel.testing", "explore"),
                *("--world", world, "--until-failure", "--json"),
                *("--max-states", "5000"),
            ],
            cwd=root,
            env=os.environ | {"PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            check=False,
        )

    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    assert report["failed"] >= 1
    assert report["trace_length"] <= at_most
    assert len(report["failures"][0]["trace"]) == report["failures"][0]["length"]


IN_WORLD = {
    "left-under-no-salt": ("cache-salts", 17),
    "clear-passes-over-pinned": ("cache-reset", 8),
    "doubt-not-cut": ("store-refusals", 55),
    "started-while-the-log-is-cut": ("store-moves", 22),
    "cancelled-fetch-stays-counted": ("dormant-moves", 45),
    "dead-store-wakes-nobody": ("dormant-faults", 38),
}
"""Where each of the bugs is found that were planted for worlds with a cache or a store."""


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.id)
def test_a_bug_of_caches_and_stores_is_found_in_its_world(mutant: Mutant) -> None:
    """Within the states that a run of all worlds walks."""
    _is_found(mutant, *IN_WORLD[mutant.id])
