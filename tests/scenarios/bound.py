"""The bound on waiting, as a formula over what is known of the turns.

In device steps, from the moment at which the scheduler has a turn to the moment at which its caller
is told the end::

    steps(T) <= sum over i of  M_i + B * ceil(M_i / P)
                               + (1 + A_i) * (ceil((K_i + M_i) / C) + 4 + 4 * B)

* the sum is over T itself and every turn i that is senior to T and open at some time while T is;
* K_i: tokens that the turn knows at its submit, history and input; M_i: its ``max_tokens``;
* A_i: turns more senior than i that were submitted while i was open: 0 for first come;
* C = max_num_batched_tokens - max_num_seqs + 1: tokens that the most senior turn absorbs in a step
  if it has that many to absorb; P = page_size;
* B: 1, and the most steps that are launched while one copy into host memory is under way.

Why. At each moment one of these turns is the most senior open one, the *top*. It is never preempted
while it is the top, and it advances in every step but those named here. Its time as the top falls
into at most 1 + A_i intervals, which begin when its last senior ends. In an interval it may have to
start from nothing: it absorbs its context again, C tokens a step, at most
ceil((K_i + M_i) / C) steps and one more where the absorbing is split in two phases. Each of its M_i
tokens is drawn once, whatever was preempted, in one step. A step may pass without it

* when it becomes the top: the one in flight, or while its own state is on its way to host memory,
  since it was preempted just before (B);
* at each of two admissions, one a phase: while a junior between its phases keeps the last row (1),
  and while the states that it asked for come back (B);
* between two phases: while its session commits (1);
* at each page that it grows by, the same: at most ceil(M_i / P) pages, one more an interval (B).

With the split that makes 4 + 4 * B an interval. A state that goes to its log comes back within one
step, because a session answers at once, and nothing junior is admitted or grown in between. One
that is copied to host memory first comes back when that copy has landed, and what already runs
goes on beside it. Not counted: steps that fail, and quarantine.

A turn that slides waits once more for each hop of its context, and ends a chunk early there: in
each interval ceil((K_i + M_i) / hop) * (1 + B) steps more.
"""

from collections.abc import Mapping

import attrs

from kernel.policies import Policy, Rank, TurnFacts

__all__ = ["RecordingPolicy", "Served", "steps_at_most"]

_LOST_PER_INTERVAL = 4
_WAITS_PER_INTERVAL = 4


@attrs.frozen(kw_only=True)
class Served:
    """A turn that ended, in numbers of steps."""

    rank: Rank
    arrived: float
    ended: float
    context: int
    max_tokens: int


@attrs.define(eq=False)
class RecordingPolicy:
    """Ranks as another policy does, and keeps what each turn was ranked by.

    Turns are known by their tenant, which the policies that are tested don't look at.
    """

    inner: Policy
    ranks: dict[str, Rank] = attrs.field(factory=dict[str, Rank])
    facts: dict[str, TurnFacts] = attrs.field(factory=dict[str, TurnFacts])

    def rank(self, facts: TurnFacts, /) -> Rank:
        rank = self.inner.rank(facts)
        self.ranks[facts.tenant] = rank
        self.facts[facts.tenant] = facts
        return rank

    def admitted(self, rank: Rank, /) -> None:
        self.inner.admitted(rank)


def steps_at_most(
    turn: Served,
    turns: Mapping[str, Served],
    *,
    chunk: int,
    page_size: int,
    beside_a_copy: int = 0,
    hop: int | None = None,
) -> int:
    """Steps within which a turn must have ended; with ``hop`` of turns that may slide."""
    total, wait = 0, 1 + beside_a_copy
    lost = _LOST_PER_INTERVAL + _WAITS_PER_INTERVAL * wait
    for other in turns.values():
        overlaps = other.arrived <= turn.ended and turn.arrived <= other.ended
        if other.rank <= turn.rank and overlaps:
            displaced = sum(
                senior.rank < other.rank and other.arrived < senior.arrived <= other.ended
                for senior in turns.values()
            )
            known = other.context + other.max_tokens
            absorbing = -(-known // chunk)
            if hop is not None:
                absorbing += -(-known // hop) * (1 + wait)
            total += other.max_tokens + wait * -(-other.max_tokens // page_size)
            total += (1 + displaced) * (absorbing + lost)
    return total
