"""What a store costs: ``python -m tests.store.figures [--sessions 100000] [--directory DIR]``.

Jobs kept per second by policy and by the number in flight; then a store of many sessions, each of
one turn and one small state: bytes on disk, time to open, memory, and the time of each question.
Times are medians. The disk decides much of it: say which one it was.
"""

import argparse
import gc
import json
import resource
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from kernel.session_store import (
    KeepState,
    KeepTurn,
    Kept,
    ReadSession,
    ReadState,
    StoreJob,
    StoreReport,
    SyncPolicy,
)
from tests.store.stores import OpenStore, image_at, opened, turn_of

TURN_TOKENS = 16
STATE_BYTES = 256


def name_of(number: int) -> str:
    """As long as the kernel's own names."""
    return f"session-{number:012}"


def keep_all(store: OpenStore, jobs: list[StoreJob], in_flight: int) -> float:
    """Seconds until all jobs are reported, with at most so many queued."""
    room = threading.Semaphore(in_flight)
    ended = threading.Semaphore(0)

    def done(report: StoreReport) -> None:
        if report != Kept():
            sys.exit(f"not kept: {report}")
        room.release()
        ended.release()

    begun = time.perf_counter()
    for job in jobs:
        room.acquire()
        store.worker.submit(job, done)
    for _ in jobs:
        ended.acquire()
    return time.perf_counter() - begun


def commits_per_s(directory: Path, sync: SyncPolicy, in_flight: int) -> float:
    """Turns kept per second, spread over a thousand sessions."""
    count = {1: 1500, 16: 6000, 256: 20000}[in_flight]
    jobs: list[StoreJob] = [
        KeepTurn(
            name_of(number % 1000),
            turn_of(number // 1000 * TURN_TOKENS, range(TURN_TOKENS)),
        )
        for number in range(count)
    ]
    with opened(directory, sync=sync) as store:
        return count / keep_all(store, jobs, in_flight)


def median_ms(call: Callable[[int], object], count: int, step: int) -> float:
    """Median of the time of a call, on numbers that are far apart."""
    times = list[float]()
    for number in range(count):
        begun = time.perf_counter()
        call(number * step)
        times.append(time.perf_counter() - begun)
    return statistics.median(times) * 1e3


def memory_bytes() -> int:
    """What the process has resident now."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def fill(directory: Path, sessions: int) -> float:
    """Seconds to keep a turn and a state of each session."""
    with opened(directory, sync="normal") as store:
        jobs: list[StoreJob] = []
        for number in range(sessions):
            turn = turn_of(0, range(TURN_TOKENS))
            jobs.append(KeepTurn(name_of(number), turn))
            image = image_at(TURN_TOKENS - 1, size=STATE_BYTES)
            jobs.append(KeepState(name_of(number), image))
        return keep_all(store, jobs, 1024)


def measure_many(directory: Path, sessions: int) -> dict[str, float]:
    """A store of many sessions, opened anew."""
    filled_s = fill(directory, sessions)
    on_disk = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    before = memory_bytes()
    begun = time.perf_counter()
    with opened(directory, sync="full") as store:
        opened_s = time.perf_counter() - begun
        memory = memory_bytes() - before
        step = max(1, sessions // 500)
        figures = {
            "sessions": sessions,
            "fill_s": filled_s,
            "bytes_each_on_disk": on_disk / sessions,
            "open_s": opened_s,
            "memory_bytes_each": memory / sessions,
            "holds_ms": median_ms(lambda n: store.worker.holds(name_of(n % sessions)), 500, step),
            "usage_ms": median_ms(lambda _n: store.usage, 500, step),
            "session_ids_ms": median_ms(lambda _n: store.worker.session_ids(), 3, step),
            "read_session_ms": median_ms(
                lambda n: store.do(ReadSession(name_of(n % sessions))), 500, step
            ),
            "read_state_ms": median_ms(
                lambda n: store.do(ReadState(name_of(n % sessions))), 500, step
            ),
            "keep_turn_ms": median_ms(
                lambda n: store.do(KeepTurn(name_of(n % sessions), turn_of(TURN_TOKENS, [1]))),
                500,
                step,
            ),
        }
        begun = time.perf_counter()
    return {**figures, "close_s": time.perf_counter() - begun}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.store.figures", description=__doc__)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--directory", type=Path, help="on the disk to measure")
    options = parser.parse_args()
    result: dict[str, object] = {}
    with tempfile.TemporaryDirectory(dir=options.directory) as place:
        result["turns_kept_per_s"] = {
            sync: {
                in_flight: round(commits_per_s(Path(place) / f"{sync}{in_flight}", sync, in_flight))
                for in_flight in (1, 16, 256)
            }
            for sync in ("full", "normal", "off")
        }
        figures = measure_many(Path(place) / "many", options.sessions)
        result |= {name: float(f"{value:.3g}") for name, value in figures.items()}
    json.dump(result, sys.stdout, indent=1)
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
