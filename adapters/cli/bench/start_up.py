"""Opens an engine over a store that is there, in a process of its own: its time and its memory.

``python -m adapters.cli.bench.start_up STORE MODEL SYNC TURNS [--traced]`` prints one JSON object.
"""

import argparse
import gc
import json
import random
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import anyio

from adapters.cli.bench.many_sessions import one_turn
from adapters.cli.bench.resident_memory import resident_bytes
from adapters.cli.bench.small_states import config_for, open_small
from kernel import Engine
from kernel.session_store import SyncPolicy

__all__ = ["start_up"]


def start_up(
    store: Path, model: str, sync: SyncPolicy, *, turns: int, traced: bool
) -> dict[str, float]:
    """What a fresh process says of opening a store.

    Args:
        store: its directory, in use by nobody.
        model: a name that :func:`open_small` knows.
        sync: as in ``EngineConfig``.
        turns: of random sessions, after which memory is looked at again.
        traced: look at what Python has allocated, else at what the process has.

    Raises:
        subprocess.CalledProcessError: it failed, and said why on its own standard error.
    """
    module = "adapters.cli.bench.start_up"
    arguments = [str(store), model, sync, str(turns), *(["--traced"] if traced else [])]
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    """Measure, here, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("store", type=Path)
    parser.add_argument("model")
    parser.add_argument("sync", choices=["full", "normal", "off"])
    parser.add_argument("turns", type=int)
    parser.add_argument("--traced", action="store_true")
    options = parser.parse_args()
    if options.traced:
        tracemalloc.start()
    print(json.dumps(anyio.run(_measure, options)))


async def _measure(options: argparse.Namespace) -> dict[str, float]:
    device = open_small(options.model)
    before = _bytes()
    started = time.perf_counter()
    async with Engine.open(config_for(options.store, options.sync), device=device) as engine:
        open_s = time.perf_counter() - started
        opened = _bytes()
        names = engine.session_ids()
        count, draws = len(names), random.Random(1)
        chosen = [names[draws.randrange(count)] for _ in range(options.turns)]
        del names
        turns_s = [await one_turn(engine, name) for name in chosen]
        served = _bytes()
    device.close()
    return {
        "sessions": count,
        "start_s": open_s,
        "first_turn_s": turns_s[0],
        "opened_bytes": opened - before,
        "served_bytes": served - before,
    }


def _bytes() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0] if tracemalloc.is_tracing() else resident_bytes()


if __name__ == "__main__":
    main()
