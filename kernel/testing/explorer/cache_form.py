"""The canonical form of the prefix cache: its states in order of use, and where others have stood.

The shape of the tree, the bytes and the pages that count for whom follow from these.
"""

from typing import Any

from kernel.prefixes.cache_use import CacheUse
from kernel.scheduling.scheduler import Scheduler
from kernel.testing.explorer.cache_checks import path_of
from kernel.testing.explorer.forms import Names, field
from ownership import BaseName

__all__ = ["cache_form", "use_form"]


def cache_form(names: Names, scheduler: Scheduler) -> tuple[Any, ...]:
    """Of the cache of a scheduler; empty where there is none."""
    cache = scheduler.cache
    if cache is None:
        return ()
    nodes = field(cache, "_nodes")
    states: list[Any] = []
    for number, handle in cache.states.items():
        salt, node = nodes[number]
        kept = cache.books[number]
        shares = None if kept.shares is None else names.number("cached", kept.shares.name.version)
        identity = (names.number("cached", number), names.handle(handle))
        states.append((*identity, salt, path_of(node), kept.bytes, shares))
    ghosts = tuple((salt, path_of(node)) for node, salt in field(cache, "_ghosts").items())
    return (field(cache, "_is_closed"), tuple(states), ghosts)


def use_form(names: Names, use: CacheUse) -> tuple[Any, ...]:
    """Of a turn's side of it; a state that is gone is shared by nobody."""
    scheduler = names.core.scheduler
    cache = None if scheduler is None else scheduler.cache
    shares: object = "nothing"
    if (
        cache is not None
        and isinstance(use.shares, BaseName)
        and use.shares.version in cache.states
    ):
        shares = names.number("cached", use.shares.version)
    return (use.salt, use.named, use.keeps_end, use.is_planned, tuple(use.cuts), shares)
