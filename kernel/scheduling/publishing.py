"""Leaving a turn's state in the prefix cache, without a copy of its pages.

When a working claim has landed where a state is wanted, a second working claim starts from it, the
first one is admitted to the cache, and the turn goes on with the second, whose first step copies
the slot and the tail and shares the full pages. Beyond the state itself that takes a slot and at
most a page. It has no rank: it is reserved at once or refused, and refused means no state.

So a state is in the cache exactly if the step that wrote it has landed, and was not its turn's
last word: what is cancelled or fails before that leaves nothing.
"""

from kernel.prefixes.cache import PrefixCache
from kernel.prefixes.turn_prefixes import Prefixes, leave_state
from kernel.scheduling.workload import Workload
from kernel.turn import OpenTurn
from ownership import LedgerView, Need, Refused

__all__ = ["publish_reached"]


def publish_reached(
    work: Workload, prefixes: Prefixes, view: LedgerView, *, may_evict: bool
) -> None:
    """Leave the states of all running turns that have landed where one is wanted.

    Args:
        work: the turns and their claims.
        prefixes: which states are wanted.
        view: of the same ledger.
        may_evict: whether others may go for them; not while a turn waits for room.
    """
    cache = prefixes.cache
    if cache is None:
        return
    reached = [
        turn
        for turn in work.roster.running
        if turn.cache.cuts and turn.cache.cuts[-1] == turn.position and turn.has_landed
    ]
    for turn in reached:
        turn.cache.cuts.pop()
        if turn.id in work.claims and prefixes.wants(turn, may_evict=may_evict):
            _publish(turn, work, cache, view, may_evict=may_evict)


def _publish(
    turn: OpenTurn, work: Workload, cache: PrefixCache, view: LedgerView, *, may_evict: bool
) -> None:
    need = Need(turn.position)
    following = work.port.reserve(need, work.claims[turn.id], turn=turn.id)
    if isinstance(following, Refused) and may_evict and _make_room(following, turn, cache, view):
        following = work.port.reserve(need, work.claims[turn.id], turn=turn.id)
    if isinstance(following, Refused):
        return
    leave_state(cache, turn, work.claims.pop(turn.id))
    # What the kept claim had beyond its position has just come back, so this is never refused.
    work.port.grow(following, turn.need(turn.position))
    turn.covered = view.covered(following)
    turn.has_landed = False
    work.claims[turn.id] = following
    if turn.need(turn.position).positions > turn.covered:
        work.grows[turn.id] = turn


def _make_room(refused: Refused, turn: OpenTurn, cache: PrefixCache, view: LedgerView) -> bool:
    """Evict what was used longest ago, if that makes the room."""
    gain = view.simulate()
    chosen = cache.plan(gain, refused.slots_short, refused.pages_short, spare=turn.cache.shares)
    if gain.slots < refused.slots_short or gain.pages < refused.pages_short:
        return False
    for name in chosen:
        cache.evict(name)
    return True
