"""One session's history as its callers were told of it: tokens, turns, marks, the last turn."""

from collections.abc import Collection, Sequence

import attrs

from kernel.messages import DropMark, HistoryMessage, InterruptTurn, RestoreMark, Rewind, SetMark
from kernel.requests.output_buffer import TurnEnd
from kernel.turn import TurnRequest

__all__ = ["Told"]


@attrs.frozen
class _Last:
    """The turn that ended last, for a late interrupt."""

    request: TurnRequest
    before: int
    """Length of the history up to its first generated token."""
    kept: int


@attrs.frozen
class _Place:
    """Where a mark stands."""

    length: int
    turns: int


@attrs.define(eq=False)
class Told:
    """What a session must be, if its callers were told the truth."""

    tokens: list[int] = attrs.field(factory=list[int])
    starts: list[int] = attrs.field(factory=list[int])
    """Length of the history at the beginning of each turn that generated."""
    marks: dict[str, _Place] = attrs.field(factory=dict[str, _Place])
    last: _Last | None = None

    def fork(self) -> "Told":
        """What a fork of that moment begins with; marks stay with the parent."""
        return Told(list(self.tokens), list(self.starts))

    def after_a_death(
        self,
        log: Sequence[int],
        lost: TurnRequest | None,
        asked: Sequence[InterruptTurn | HistoryMessage],
    ) -> "Told | None":
        """What the session may be that a disk has kept of this one; ``None``: it can't be that.

        Args:
            log: what it is.
            lost: a turn with which it died: all of it may be kept, or any part of its output.
            asked: what was asked and not answered; the first may be done.
        """
        if log == self.tokens:
            return self
        if lost is not None and log[: len(self.tokens)] == self.tokens:
            more = log[len(self.tokens) :]
            output = more[len(lost.tokens) :]
            if more == [*lost.tokens, *lost.output.tokens[: len(output)]]:
                found = attrs.evolve(self.fork(), marks=dict(self.marks))
                found.ended(lost, TurnEnd("abort", len(output)))
                found.last = None
                return found
        shorter = self.tokens[: len(log)]
        if log == shorter and any(not isinstance(one, SetMark | DropMark) for one in asked):
            found = attrs.evolve(self.fork(), marks=dict(self.marks))
            found._cut(len(log))
            return found
        return None

    def has_mark(self, name: str, length: int) -> bool:
        """Whether a mark of that name may stand there."""
        mark = self.marks.get(name)
        return mark is None or mark.length == length

    def keep_marks(self, names: Collection[str]) -> None:
        """Forget the other marks."""
        self.marks = {name: mark for name, mark in self.marks.items() if name in names}

    def ended(self, request: TurnRequest, end: TurnEnd) -> None:
        """A turn ended without an error: its input and what was kept are in the history."""
        begins = len(self.tokens)
        if request.kind == "generate" and (request.tokens or end.kept):
            self.starts.append(begins)
        self.tokens += request.tokens
        self.last = _Last(request, len(self.tokens), end.kept)
        self.tokens += request.output.tokens[: end.kept]

    def interrupted(self, message: InterruptTurn, kept: int) -> None:
        """An interrupt was answered; it may have cut the last turn."""
        last = self.last
        if last is not None and message.turn in (None, last.request.id) and kept < last.kept:
            self._cut(last.before + kept)
            self.last = attrs.evolve(last, kept=kept)

    def changed(self, message: HistoryMessage, turns: int) -> str:
        """The history was changed, and so many turns are left; returns what is wrong with that."""
        match message:
            case Rewind():
                left = message.to if message.to >= 0 else len(self.starts) + message.to
                if left < len(self.starts):
                    self._go_back(_Place(self.starts[left], left))
            case RestoreMark():
                if message.name not in self.marks:
                    return f"{message.name!r} was restored, and there is no such mark"
                self._go_back(self.marks[message.name])
            case SetMark():
                self.marks[message.name] = _Place(len(self.tokens), len(self.starts))
            case DropMark():
                if self.marks.pop(message.name, None) is None:
                    return f"{message.name!r} was dropped, and there is no such mark"
        if turns != len(self.starts):
            return f"{message} left {turns} turns, and {len(self.starts)} are right"
        return ""

    def _go_back(self, place: _Place) -> None:
        self.last = None
        del self.starts[place.turns :]
        self._cut(place.length)

    def _cut(self, length: int) -> None:
        del self.tokens[length:]
        while self.starts and self.starts[-1] >= length:
            self.starts.pop()
        for name, place in list(self.marks.items()):
            if place.length > length:
                del self.marks[name]
