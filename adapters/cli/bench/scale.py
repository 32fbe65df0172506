"""A hundred thousand sessions on one engine: their bytes, a turn among them, start and end."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio

from adapters.cli.bench.many_sessions import ManySessions
from adapters.cli.bench.small_states import RESIDENT
from adapters.cli.bench.start_up import start_up
from kernel.session_store import SyncPolicy

__all__ = ["scale", "sizes_up_to"]

_TURNS_BEFORE_WEIGHING = 200


def sizes_up_to(sessions: int) -> tuple[int, ...]:
    """100, ten times as many and so on, up to the given number."""
    sizes = [100]
    while sizes[-1] * 10 < sessions:
        sizes.append(sizes[-1] * 10)
    return tuple(sorted({size for size in sizes if size < sessions} | {sessions}))


def scale(
    sessions: int = 100_000,
    *,
    model: str = "fake",
    sync: SyncPolicy = "full",
    turns: int = 500,
    directory: Path | None = None,
    tell: Callable[[str], object] = lambda _what: None,
) -> dict[str, Any]:
    """Figures of so many sessions, and of fewer beside them.

    Args:
        sessions: the largest number.
        model: ``"fake"`` or ``"tiny"``; both have a state of at most 256 bytes.
        sync: as in ``EngineConfig``.
        turns: measured turns for each number of sessions.
        directory: on the disk to measure; the system's for temporary files by default.
        tell: told what is being done.
    """
    with tempfile.TemporaryDirectory(prefix="tenure-bench-", dir=directory) as place:
        many = ManySessions(sizes_up_to(sessions), Path(place), model, sync, tell)
        closed = anyio.run(_serve, many, turns)
        tell("opening the stores again, each in a process of its own ...")
        return {
            "sessions": sessions,
            "model": model,
            "sync": sync,
            "resident": RESIDENT,
            **closed,
            **_of_fresh_processes(many),
        }


async def _serve(many: ManySessions, turns: int) -> dict[str, Any]:
    async with many.open():
        await many.measure(turns)
        largest = many.worlds[-1]
        usage = largest.engine.stats()
    medians = many.turn_ms()
    return {
        "state_bytes": largest.engine.core.model.slot_bytes,
        "turn_ms": medians,
        "turn_p95_ms": many.turn_p95_ms(),
        "turn_cpu_ms": many.turn_cpu_ms(),
        "turn_spread": round(max(medians.values()) / min(medians.values()) - 1, 3),
        "per_turn": many.per_turn(),
        "opened_per_s": round(largest.count / largest.open_s),
        "grown_bytes_each": round(largest.bytes_grown / largest.count),
        "content_bytes_each": round(usage.store_bytes / usage.sessions_stored),
        "close_s": round(largest.close_s, 3),
    }


def _of_fresh_processes(many: ManySessions) -> dict[str, Any]:
    """What differs between a process with all of the sessions and one with the fewest."""
    fewest, most = many.sizes[0], many.sizes[-1]
    found = {
        (count, traced): start_up(
            many.store_of(count),
            many.model,
            many.sync,
            turns=_TURNS_BEFORE_WEIGHING,
            traced=traced,
        )
        for count in sorted({fewest, most})
        for traced in (False, True)
    }

    def each(figure: str, *, traced: bool) -> int:
        more = max(1, most - fewest)
        return round((found[most, traced][figure] - found[fewest, traced][figure]) / more)

    opened = found[most, False]
    return {
        "bytes_each": {
            "host": each("opened_bytes", traced=False),
            "host_after_turns": each("served_bytes", traced=False),
            "python": each("opened_bytes", traced=True),
            "python_after_turns": each("served_bytes", traced=True),
            "disk": round(_disk_bytes(many.store_of(most)) / most),
        },
        "start_s": round(opened["start_s"], 3),
        "first_turn_ms": round(opened["first_turn_s"] * 1e3, 3),
        "lost": most - round(opened["sessions"]),
    }


def _disk_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
