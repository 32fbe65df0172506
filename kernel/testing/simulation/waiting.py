"""Within how many steps each turn must have ended, as ``docs/architecture.md`` derives it.

The bound counts steps from a turn's submit, or from the end of the faults if it was open then: with
the turns that are senior to it, how often each may become the most senior, and what each may have
to absorb again. What fails, hangs or stands in quarantine is not in it, so it is asked only of a
world that has come to be without faults.
"""

from collections.abc import Sequence

from kernel.engine.core import Core
from kernel.testing.simulation.histories import TurnRecord

__all__ = ["late_turns", "steps_for_all"]

_LOST_PER_INTERVAL = 4
_WAITS_PER_INTERVAL = 4
"""For room to come back, each as long as a copy into host memory takes, counted in steps."""
_UNTIL_IT_IS_SEEN = 3
"""Steps between the end of a turn and the count: one that runs, and what is forgotten with it."""


def late_turns(core: Core, turns: Sequence[TurnRecord], since: int) -> list[str]:
    """Turns that were open at or after step ``since`` and ended later than the bound allows."""
    spans = [_Span(core, record, since) for record in turns]
    spans = [span for span in spans if span.ended >= since]
    late: list[str] = []
    for span in spans:
        steps, bound = span.ended - span.arrived, _bound(core, span, spans)
        if steps > bound:
            late.append(f"{span.record.turn.id} took {steps} steps, and {bound} are the bound")
    return late


def steps_for_all(core: Core, turns: int) -> int:
    """Steps within which so many turns must all have ended, whoever they are."""
    longest = core.session_limits.max_len
    absorbing = -(-longest // _chunk(core)) + _lost(core)
    each = _wait(core) * longest + (1 + turns) * absorbing
    return (1 + turns) * each


class _Span:
    def __init__(self, core: Core, record: TurnRecord, since: int) -> None:
        turn = record.turn
        self.record = record
        self.rank = turn.rank
        self.arrived = max(record.arrived, since)
        self.ended = core.counters.steps if record.ended is None else record.ended
        self.max_tokens = turn.max_tokens if turn.kind == "generate" else 0
        self.known = len(record.context)


def _bound(core: Core, span: _Span, spans: Sequence[_Span]) -> int:
    chunk, page_size = _chunk(core), core.limits.page_size
    total = _UNTIL_IT_IS_SEEN
    for other in spans:
        overlaps = other.arrived <= span.ended and span.arrived <= other.ended
        if other.rank <= span.rank and overlaps:
            displaced = sum(
                senior.rank < other.rank and other.arrived <= senior.arrived <= other.ended
                for senior in spans
                if senior is not other
            )
            absorbing = -(-(other.known + other.max_tokens) // chunk)
            total += other.max_tokens + _wait(core) * -(-other.max_tokens // page_size)
            total += (1 + displaced) * (absorbing + _lost(core))
    return total


def _wait(core: Core) -> int:
    """Steps within which what a turn takes room from has given it."""
    return 1 + core.counters.steps_beside_a_copy


def _lost(core: Core) -> int:
    return _LOST_PER_INTERVAL + _WAITS_PER_INTERVAL * _wait(core)


def _chunk(core: Core) -> int:
    return core.limits.max_step_tokens - core.limits.max_rows + 1
