"""Collects what is wrong: counts all of it, keeps the first of it."""

from collections import Counter

import attrs

from adapters.trace_audit.report import Kind, Problem

__all__ = ["Findings"]

MAX_PROBLEMS_KEPT = 100


@attrs.define(eq=False)
class Findings:
    """The problems of one engine's log, bounded in memory whatever the log holds."""

    seq: int = 0
    """Sequence number of the event that is being replayed."""
    about: str = ""
    """What that event is about."""
    leaked: int = 0
    kinds: Counter[str] = attrs.field(factory=Counter[str])
    problems: list[Problem] = attrs.field(factory=list[Problem])

    def add(self, kind: Kind, text: str | None, *, about: str | None = None) -> None:
        """Note a problem; a text of None is none. Without a subject it is the event's."""
        if text is None:
            return
        self.kinds[kind] += 1
        if len(self.problems) < MAX_PROBLEMS_KEPT:
            self.problems.append(Problem(self.seq, kind, text, about or self.about))

    def leak(self, places: int, text: str, *, about: str | None = None) -> None:
        """Note that so many slots and pages never come back."""
        self.leaked += places
        self.add("leak", text, about=about)
