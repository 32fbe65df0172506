"""Is the log as it was written? Finds the events that were changed, removed, doubled or moved.

Each event names the one before it, so a missing event is named by its successor, and a changed one
too, whatever became of its own fields. One event is held back until the next is there: whether a
stranger was put in or something is missing, only the next event tells.
"""

from collections.abc import Iterator

import attrs

from adapters.trace_audit.event import Event
from adapters.trace_audit.report import Kind
from adapters.trace_audit.seal import Seal, subject_of

__all__ = ["Chain", "Doubt", "Link"]


@attrs.frozen
class Doubt:
    """What is wrong with the log at one place, and whose event it is."""

    kind: Kind
    about: str
    text: str


@attrs.frozen
class Link:
    """An event in its order, or a doubt about the log, or both."""

    event: Event | None
    doubt: Doubt | None = None


@attrs.frozen
class _Sealed:
    event: Event
    seal: Seal | None

    @property
    def is_intact(self) -> bool:
        return self.seal is not None and self.seal.is_intact


@attrs.define(eq=False)
class Chain:
    """The events of one engine, one after another; gives them back in the order of their numbers.

    Logs without seals (of a bare observer) pass as they are.
    """

    _expected: int = 0
    _last_check: int | None = None
    _first_check: int | None = None
    _waiting: _Sealed | None = None
    _early: dict[int, _Sealed] = attrs.field(factory=dict[int, _Sealed])
    is_sealed: bool = False

    def feed(self, event: Event) -> Iterator[Link]:
        """Take the next line; gives back what the line before it turned out to be."""
        current = _Sealed(event, Seal.of(event))
        if current.seal is not None:
            self.is_sealed = True
            if current.seal.number == 0 and self._first_check is None:
                self._first_check = current.seal.check
        before, self._waiting = self._waiting, current
        if before is not None:
            yield from self._judge(before, current)

    def finish(self) -> Iterator[Link]:
        """The log has ended."""
        before, self._waiting = self._waiting, None
        if before is not None:
            yield from self._judge(before, None)
        yield from self._early_ones()

    def is_another_ledgers(self, event: Event) -> bool:
        """Whether a ``ledger.opened`` begins another log, appended to this one."""
        seal = Seal.of(event)
        if seal is None:
            return True
        # Where nothing has been judged yet, this one's own first event may only stand too late.
        is_begun = self._first_check is not None or self._expected > 0
        return seal.number == 0 and is_begun and seal.check != self._first_check

    def _judge(self, current: _Sealed, following: _Sealed | None) -> Iterator[Link]:
        if not self.is_sealed:
            yield Link(current.event)
            return
        seal = current.seal
        if seal is None or not seal.is_intact:
            yield from self._changed(current, following)
            return
        if seal.number < self._expected:
            yield Link(None, _doubled_or_late(current))
            return
        if seal.number > self._expected:
            yield from self._early_ones()
        if seal.number == self._expected:
            self._early.pop(seal.number, None)
            yield self._accept(current, seal, self._break_before(seal))
        elif self._is_next(following):
            self._early[seal.number] = current
            what = f"its {current.event.name} stands before events that were written earlier"
            yield Link(None, Doubt("misplaced", subject_of(current.event), what))
        else:
            yield self._accept(current, seal, self._missing(seal))

    def _changed(self, current: _Sealed, following: _Sealed | None) -> Iterator[Link]:
        about, check = subject_of(current.event), None if not current.seal else current.seal.check
        expected = self._expected + 1
        if following is not None and following.seal is not None and following.is_intact:
            # An event from another log, or one in its place: the next one knows its number.
            is_in_place = following.seal.number == expected
            expected = following.seal.number
            if is_in_place:
                about = following.seal.before
            check = following.seal.before_check
        self._expected, self._last_check = expected, check
        what = f"its {current.event.name} is not as it was written"
        yield Link(current.event, Doubt("changed", about, what))

    def _accept(self, current: _Sealed, seal: Seal, doubt: Doubt | None) -> Link:
        self._expected = seal.number + 1
        self._last_check = seal.check
        return Link(current.event, doubt)

    def _break_before(self, seal: Seal) -> Doubt | None:
        if seal.before_check == self._last_check:
            return None
        return Doubt("changed", seal.before, "its event here is not the one that was written here")

    def _missing(self, seal: Seal) -> Doubt:
        count = seal.number - self._expected
        if count == 1:
            return Doubt("gap", seal.before, "an event of it is missing")
        return Doubt("gap", seal.before, f"{count} events are missing, the last of them its own")

    def _early_ones(self) -> Iterator[Link]:
        """Events that stood too early, now that it is their turn."""
        while (held := self._early.pop(self._expected, None)) is not None:
            if held.seal is not None:
                yield self._accept(held, held.seal, None)

    def _is_next(self, following: _Sealed | None) -> bool:
        if following is None or following.seal is None:
            return False
        return following.is_intact and following.seal.number == self._expected


def _doubled_or_late(current: _Sealed) -> Doubt:
    what = f"its {current.event.name} stands here again, or later than it was written"
    return Doubt("misplaced", subject_of(current.event), what)
