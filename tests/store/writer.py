"""The process that ``tests.store.kills`` kills: it writes to a store without end.

What it writes can be known without asking it, from the session and the number of the turn.
"""

import random
import threading
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from kernel.session_store import KeepState, KeepTurn, Kept, ReadSession, SessionRecord, SyncPolicy
from kernel.state_image import StateImage
from tests.store.stores import OpenStore, image_at, opened, turn_of

__all__ = ["FILE_BYTES", "READY", "SESSIONS", "TOKENS", "image_of", "tokens_of", "write_for_ever"]

SESSIONS = 8
TOKENS = 3
FILE_BYTES = 2000
READY = "ready"


def tokens_of(session: int, turn: int) -> list[int]:
    """What a turn of a session holds."""
    return [session * 1_000_003 + turn * 17 + place for place in range(TOKENS)]


def image_of(session: int, position: int, size: int) -> StateImage:
    """The state of a session at a position."""
    return image_at(position, size=size, fill=(session * 31 + position) % 200)


def write_for_ever(directory: Path, sync: SyncPolicy, seed: int, reports: Connection) -> None:
    """Keep turns and states without end; send the session and number of each turn reported."""
    rng = random.Random(seed)
    lock = threading.Lock()
    room = threading.Semaphore(32)

    def tell(line: str, report: object) -> None:
        room.release()
        with lock:
            if report != Kept():
                reports.send(f"fault {report}")
            elif line:
                reports.send(line)

    with opened(directory, sync=sync, file_bytes=FILE_BYTES) as store:
        turns = [_turns_of(store, session) for session in range(SESSIONS)]
        reports.send(READY)
        while True:
            session = rng.randrange(SESSIONS)
            turn = turns[session]
            turns[session] += 1
            line = f"{session} {turn}"
            kept = turn_of(turn * TOKENS, tokens_of(session, turn))
            room.acquire()
            store.worker.submit(KeepTurn(f"s{session}", kept), partial(tell, line))
            if rng.random() < 0.3:
                image = image_of(session, (turn + 1) * TOKENS - 1, rng.choice((64, 4096)))
                room.acquire()
                store.worker.submit(KeepState(f"s{session}", image), partial(tell, ""))


def _turns_of(store: OpenStore, session: int) -> int:
    record = store.do(ReadSession(f"s{session}"))
    return len(record.turns) if isinstance(record, SessionRecord) else 0
