"""Worlds for tests of the explorer itself: a handful of states each."""

from kernel.config import EngineConfig
from kernel.testing.explorer import Conversation, Turn, World

__all__ = ["ONE_TURN", "TWO_TURNS", "engine", "two_sessions"]


def engine(slots: int = 2) -> EngineConfig:
    return EngineConfig(max_num_seqs=2, num_slots=slots, max_num_batched_tokens=2)


def two_sessions(**fields: object) -> World:
    given: dict[str, object] = {
        "name": "two",
        "conversations": (
            Conversation("a", (Turn((1, 2)),)),
            Conversation("b", (Turn((1, 2)),)),
        ),
        "config": engine(),
        "same": ("a", "b"),
        **fields,
    }
    return World(**given)  # type: ignore[arg-type]


ONE_TURN = World(
    name="one", conversations=(Conversation("a", (Turn((1, 2)),)),), config=engine(1), stops=False
)

TWO_TURNS = World(
    name="two-turns",
    conversations=(Conversation("a", (Turn((1, 2)), Turn((3,)))),),
    config=engine(1),
)
