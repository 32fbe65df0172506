"""What a session's history is, as plain lists: the log, where its turns began, and its marks."""

from collections.abc import Sequence

import attrs

__all__ = ["History"]


@attrs.define
class History:
    """Kept by a client beside its session, to compare with."""

    log: list[int] = attrs.field(factory=list[int])
    starts: list[int] = attrs.field(factory=list[int])
    marks: dict[str, tuple[int, int]] = attrs.field(factory=dict[str, tuple[int, int]])
    """Length of the log and number of turns, by name."""
    slides: bool = False
    """Whether its session drops its oldest positions."""

    @property
    def turns(self) -> int:
        return len(self.starts)

    def add_turn(self, prompt: Sequence[int], tokens: Sequence[int]) -> None:
        """A turn has ended, with this kept of it."""
        self.starts.append(len(self.log))
        self.log += [*prompt, *tokens]

    def cut(self, length: int) -> None:
        """The log was shortened: marks beyond it are gone."""
        del self.log[length:]
        self.marks = {name: mark for name, mark in self.marks.items() if mark[0] <= length}

    def rewind(self, turns: int) -> None:
        """Back to the beginning of a turn; keeping all of them changes nothing."""
        if turns < self.turns:
            self.go_back(self.starts[turns], turns)

    def go_back(self, length: int, turns: int) -> None:
        """Back to a place."""
        del self.starts[turns:]
        self.cut(length)

    def mark(self, name: str) -> None:
        """Name the place where the log ends."""
        self.marks.pop(name, None)
        self.marks[name] = len(self.log), self.turns

    def fork(self) -> "History":
        """A fork's: the same log, and no marks."""
        return History([*self.log], [*self.starts], slides=self.slides)
