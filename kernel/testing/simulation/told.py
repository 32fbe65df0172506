"""One session's history as its callers were told of it: tokens, turns, marks, the last turn."""

import attrs

from kernel.messages import DropMark, HistoryMessage, InterruptTurn, RestoreMark, Rewind, SetMark
from kernel.output_buffer import TurnEnd
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
