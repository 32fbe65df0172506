"""What turns have of the prefix cache: what they start from, and which of their states it keeps.

Values go in and names come out. Who takes room, and when, is said by
:mod:`kernel.scheduling.admission` and :mod:`kernel.scheduling.publishing`.
"""

from typing import Final, final

import attrs

from kernel.flight import Counters
from kernel.prefixes.cache import Match, PrefixCache
from kernel.prefixes.policy import CachePolicy, Prospect
from kernel.turn import OpenTurn
from ownership import ZEROS, BatchOwned, Consume

__all__ = ["NO_PREFIXES", "Prefixes", "leave_state"]

_OFF: Final = Match(ZEROS, 0, "off", None, ())


@final
class Prefixes:
    """The turns' side of a prefix cache.

    Args:
        cache: ``None``: there is none, and nothing here does anything.
        policy: which positions are worth a state.
        counters: where hits and misses are counted.
    """

    def __init__(self, cache: PrefixCache | None, policy: CachePolicy, counters: Counters) -> None:
        self.cache = cache
        self._policy = policy
        self._counters = counters

    def match(self, turn: OpenTurn) -> Match:
        """What a turn that would start from nothing can start from.

        The answer is a name and pins nothing: the reserve that follows in the same handler does.
        """
        cache = self.cache
        if cache is None:
            return _OFF
        last = _last(turn)
        limit = max(
            0, last if turn.prompt_logprobs is None else min(last, turn.first_scored(0) - 1)
        )
        use = turn.cache
        match = cache.match(use.salt, use.key(limit, turn.tokens), limit)
        if match.miss is not None and limit < last:  # no matter what there is
            return attrs.evolve(match, miss="prompt_logprobs")
        return match

    def begin(self, turn: OpenTurn, match: Match | None) -> None:
        """A turn has its claim: decide where its rows end, and count what it found.

        Args:
            turn: at the position of its base.
            match: ``None``: it starts from a state of its own session.
        """
        use = turn.cache
        use.shares = ZEROS if match is None else match.base
        if self.cache is None:
            if match is not None and not turn.was_admitted:
                turn.output.cache_miss = match.miss
            return
        if match is None and use.is_planned:
            return  # It goes on where it was.
        use.cuts = self._policy.positions(_prospect(turn, match))
        use.is_planned = True
        if match is None or turn.has_computed:
            return
        turn.output.cache_miss = match.miss
        if turn.was_admitted:
            return
        if match.miss is None:
            self._counters.cache_hits += 1
        else:
            self._counters.cache_misses += 1

    def wants(self, turn: OpenTurn, *, least: int = 1, may_evict: bool = True) -> bool:
        """Whether a turn's state belongs into the cache and fits; makes it fit within the budget.

        Args:
            turn: where it is, no state stands yet, nor one less than ``least`` tokens before it.
            least: tokens that it must spare.
            may_evict: whether others may go for it.
        """
        cache, position, use = self.cache, turn.position, turn.cache
        if cache is None or position < least:
            return False
        stands_at = cache.reach(use.salt, use.key(position, turn.tokens))
        if position - stands_at < least:
            return False
        return cache.fit_budget(position, use.shares, may_evict=may_evict)

    def wants_end(self, turn: OpenTurn, *, may_evict: bool = True) -> bool:
        """As :meth:`wants`, of the last state of a turn that nobody commits."""
        keeps = turn.cache.keeps_end and turn.has_landed and not turn.first_page
        return keeps and self.wants(turn, least=self._policy.least, may_evict=may_evict)


def leave_state(cache: PrefixCache, turn: OpenTurn, claim: Consume[BatchOwned]) -> None:
    """Keep a turn's claim, which has landed at the turn's position.

    Raises:
        LedgerError: it has not; nothing has changed.
    """
    use = turn.cache
    use.shares = cache.admit(claim, use.salt, use.key(turn.position, turn.tokens), use.shares)


def _prospect(turn: OpenTurn, match: Match | None) -> Prospect:
    """What the policy goes by; of a turn on its own session's state only what its caller names."""
    last, named = _last(turn), turn.cache.named
    if match is None:
        return Prospect(turn.position, last, None, named=named)
    prompt_end = turn.history_len + turn.input_len - 1
    return Prospect(turn.position, last, prompt_end, match.branch, match.missed, named)


def _last(turn: OpenTurn) -> int:
    """The last position that leaves a token to compute, before the first that drops any pages."""
    last = turn.target - 1
    return last if turn.window is None else min(last, turn.window.length - 1)


NO_PREFIXES: Final = Prefixes(None, CachePolicy(block=1, least=1), Counters())
"""Of an engine without a prefix cache."""
