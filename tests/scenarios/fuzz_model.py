"""What the fuzz knows of its clients: turns that are open, and the history that there should be."""

import random
from collections import deque
from typing import Any

import attrs

from kernel import RunningTurn, Session
from kernel.ids import SessionId

__all__ = ["Client", "Open", "draw_config"]


def draw_config(rng: random.Random) -> dict[str, Any]:
    """Pools that are tight more often than not."""
    rows = rng.choice([1, 2, 4])
    return {
        "num_slots": rng.choice([1, 2, 3, 4]),
        "num_pages": rng.choice([8, 12, 20]),
        "max_num_seqs": rows,
        "max_num_batched_tokens": rows + rng.choice([0, 2, 9]),
        "max_num_queued_reqs": rng.choice([2, 100]),
        "scheduling_policy": rng.choice(["fcfs", "priority", "fair", "deadline"]),
    }


@attrs.define(eq=False)
class Open:
    """A submitted turn, and what its reader has got so far."""

    turn: RunningTurn
    session_id: SessionId
    received: list[int] = attrs.field(factory=list[int])
    ends: int = 0


@attrs.define(eq=False)
class Client:
    """A session and the model of its history."""

    session: Session
    history: list[int] = attrs.field(factory=list[int])
    turns: deque[Open] = attrs.field(factory=deque[Open])
    """Open ones, in order of submission."""
    last: tuple[int, int] | None = None
    """Of the last finished turn: length of the history before its tokens, and their number."""

    @property
    def id(self) -> SessionId:
        return SessionId(self.session.session_id)
