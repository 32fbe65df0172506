"""Replays crashes of the store alone: ``python -m tests.store.crashes [--seeds 1..8]``.

Every prefix of what a run did to its files, and of what was not synced by then: all lost, each
operation lost alone and kept alone, random subsets, the last write torn, lengthened files full of
zeros. Each directory that comes of it is recovered and held to the promise; some go on from there
and crash a second time. See docs/session-store.md.
"""

import argparse
import json
import sys
import time

from kernel.session_store import SyncPolicy
from tests.store.crash_runs import record, replay, replay_twice

POLICIES: tuple[SyncPolicy, ...] = ("full", "normal", "off")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.store.crashes", description=__doc__)
    parser.add_argument("--seeds", default="1..4", help="first and last, each a run per policy")
    parser.add_argument("--groups", type=int, default=14, help="groups of jobs in a run")
    parser.add_argument("--alone", type=int, default=8, help="most operations lost alone")
    parser.add_argument("--subsets", type=int, default=4, help="random subsets lost")
    parser.add_argument("--again", type=int, default=20, help="crashes followed by a second one")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    first, _, last = options.seeds.partition("..")
    results = list[dict[str, object]]()
    is_broken = False
    for seed in range(int(first), int(last or first) + 1):
        for sync in POLICIES:
            begun = time.perf_counter()
            recording = record(seed, sync, groups=options.groups, reopen_every=5)
            tally = replay(recording, seed, alone=options.alone, subsets=options.subsets)
            again = replay_twice(recording, seed, crashes_each=options.again, every=3)
            is_broken |= bool(tally.broken or again.broken)
            result: dict[str, object] = {
                "seed": seed,
                "sync": sync,
                "operations": tally.operations,
                "crashes": tally.crashes,
                "different_directories": tally.states,
                "by_loss": dict(tally.kinds),
                "second_crashes": again.crashes,
                "second_different_directories": again.states,
                "broken": tally.broken + again.broken,
                "seconds": round(time.perf_counter() - begun, 1),
            }
            results.append(result)
            if not options.json:
                sys.stdout.write(f"{result}\n")
    if options.json:
        json.dump(results, sys.stdout, indent=1)
        sys.stdout.write("\n")
    return int(is_broken)


if __name__ == "__main__":
    sys.exit(main())
