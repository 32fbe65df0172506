"""Everything that could differ from run to run, in one injected place.

The kernel takes time, the order of dispatch, fresh ids and the delivery of completions from an
:class:`Environment` and from nowhere else. Production uses the defaults; the explorer and the
simulator put their own in and get the same actors on a deterministic world.
"""

import itertools
import os
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import anyio.to_thread
import attrs

__all__ = ["Environment", "RunBlocking"]

T = TypeVar("T")


class RunBlocking(Protocol):
    """Runs what would block off the event loop, and returns what it returns."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


async def _in_a_thread(work: Callable[[], T], /) -> T:
    return await anyio.to_thread.run_sync(work)


def _counting_ids() -> Callable[[str], str]:
    counters: dict[str, itertools.count[int]] = defaultdict(lambda: itertools.count(1))
    return lambda prefix: f"{prefix}-{next(counters[prefix])}"


@attrs.define(eq=False)
class Environment:
    """The world as the kernel sees it."""

    clock: Callable[[], float] = time.monotonic
    """Seconds on a clock that never goes back."""

    choose: Callable[[int], int] | None = None
    """Which of ``n`` ready mailboxes is served next; ``None`` is first come, first served."""

    new_id: Callable[[str], str] = attrs.field(factory=_counting_ids)
    """A fresh id that begins with the prefix; unique within one engine."""

    deliver: Callable[[Callable[[], object]], None] | None = None
    """Takes the delivery of each device completion, to make it when it likes; for devices that
    complete on the dispatcher's thread. ``None`` delivers at once, from any thread."""

    random: Callable[[int], bytes] = os.urandom
    """So many bytes that nobody else has; they tell one life of an engine from all others."""

    run_blocking: RunBlocking = _in_a_thread
    """How stores are opened, and sessions packed, written and read. Cancel-safe: what was begun is
    finished first."""
