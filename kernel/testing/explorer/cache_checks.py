"""What holds of the prefix cache in each state: what stands in it, and who starts from it."""

from array import array
from collections.abc import Iterator
from typing import Any

from kernel.ids import SCHEDULER
from kernel.prefixes.tree import Node
from kernel.testing.explorer.contents import state_holds
from kernel.testing.explorer.forms import field
from kernel.testing.explorer.stage import Stage
from kernel.testing.invariants import Broken
from ownership import Kind

__all__ = ["cache_is_sound", "path_of"]


def path_of(node: Node) -> tuple[int, ...]:
    """The tokens that lead to a node of the tree."""
    edges: list[bytes] = []
    at: Node | None = node
    while at is not None:
        edges.append(at.edge)
        at = at.parent
    return tuple(array("I", b"".join(reversed(edges))))


def cache_is_sound(stage: Stage) -> Iterator[Broken]:
    """A cached state holds the beginning that it is found by, and serves its own salt alone."""
    scheduler = stage.core.scheduler
    if scheduler is None or scheduler.cache is None:
        return
    nodes: dict[int, tuple[str, Node]] = field(scheduler.cache, "_nodes")
    for number, handle in scheduler.cache.states.items():
        salt, node = nodes[number]
        tokens = path_of(node)
        view = stage.core.ledger.view.describe(handle)
        if view.position != len(tokens) or node.state != number:
            yield Broken(
                "a cached state stands at its position",
                f"state {number} at {view.position} stands at {tokens}",
            )
        yield from state_holds(stage, handle, tokens, f"the cache, under {salt!r}")
    yield from _salts(stage)


def _salts(stage: Stage) -> Iterator[Broken]:
    """By the turns that made the states, as the ledger knows them; the cache isn't asked."""
    book = field(stage.core.ledger, "_book")
    for record in book.claims.values():
        turn = record.turn
        if record.kind is not Kind.BATCH or not _is_asked(stage, turn):
            continue
        for source in _sources(book, record):
            is_cached = source.name is not None and source.name.holder == SCHEDULER
            if is_cached and stage.salt_of(source.turn) != stage.salt_of(turn):
                yield Broken(
                    "nobody starts from another's state",
                    f"{turn} starts from what {source.turn} has left under another salt",
                )


def _sources(book: Any, record: Any) -> Iterator[Any]:
    """What a claim was copied from, or is to be."""
    if record.base is not None:
        yield record.base
    name = record.origin
    origin = None if name is None else book.names.get((name.holder, name.version))
    if origin is not None and origin is not record.base:
        yield origin


def _is_asked(stage: Stage, turn: str) -> bool:
    return any(asked.request.id == turn for one in stage.callers for asked in one.asked)
