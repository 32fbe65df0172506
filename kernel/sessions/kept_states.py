"""The committed states that one session keeps, and what names each of them.

Nothing ever writes into a committed state, so to keep one copies nothing: it is left out of the
next commit. A state stays while something names it: the session (its *current* one), the turn
that ended last (its automatic checkpoint), or a mark. It is closed with its last name.
"""

import enum
from collections.abc import Sequence
from typing import Final

import attrs

from ownership import (
    BaseName,
    BatchOwned,
    Consume,
    CustodianId,
    LedgerView,
    Owns,
    Place,
    SessionOwned,
    SessionPort,
)

__all__ = ["FREE", "NO_STATE", "KeptStates", "Mark", "NoState", "StateCosts"]


class NoState(enum.Enum):
    """The type of :data:`NO_STATE`."""

    NO_STATE = "no state"


NO_STATE: Final = NoState.NO_STATE
"""In place of a version: there is no state, or it was given up."""


@attrs.frozen
class StateCosts:
    """What states take, in bytes, and how much of it a session's marks may keep."""

    slot_bytes: int = 0
    page_bytes: int = 0
    max_marked_bytes: int | None = None


FREE: Final = StateCosts()


@attrs.frozen
class Mark:
    """A named place in a session's history to which it can go back."""

    length: int
    """Of the log."""
    turns: int
    absorbed: int
    """What the session had absorbed then; what is absorbed again below it is recomputation."""
    version: int | NoState
    """Of the state that it keeps; ``NO_STATE``: it is recomputed from the log."""


class KeptStates:
    """States by version, each in the session's custody.

    Attributes:
        kept: all that the session holds, by the version in its name.
        current: the one that caches the newest log.
        before: the automatic checkpoint: what the last turn started from.
        marks: by name, in the order in which they were set.
    """

    kept: Owns[dict[int, SessionOwned]]

    __slots__ = ("_costs", "_holder", "_port", "_view", "before", "current", "kept", "marks")

    def __init__(
        self, holder: CustodianId, port: SessionPort, view: LedgerView, costs: StateCosts
    ) -> None:
        self._holder = holder
        self._port = port
        self._view = view
        self._costs = costs
        self.kept = {}
        self.current: int | NoState = NO_STATE
        self.before: int | NoState = NO_STATE
        self.marks: dict[str, Mark] = {}

    @property
    def start(self) -> int | NoState:
        """The state that the next turn starts from: the current one, or the furthest marked one."""
        if self.current is not NO_STATE or not self.kept:
            return self.current
        return self._furthest()

    @property
    def is_behind(self) -> bool:
        """Whether the next turn starts from a mark's state, since the current one is gone."""
        return self.current is NO_STATE and bool(self.kept)

    @property
    def others(self) -> tuple[BaseName, ...]:
        """Names of marks' states but the one that a turn starts from now, the furthest first."""
        if not self.marks:
            return ()
        marked = {mark.version for mark in self.marks.values()}
        others = [version for version in self.kept if version in marked and version != self.start]
        found = sorted(others, key=self.position, reverse=True)
        return tuple(self.name_of(version) for version in found)

    def name_of(self, version: int) -> BaseName:
        """How a turn asks for a state as its base."""
        return BaseName(self._holder, version)

    def position(self, version: int | NoState) -> int:
        """Tokens that a kept state has absorbed; 0 when there is none."""
        if version is NO_STATE or version not in self.kept:
            return 0
        return self._view.position(self.kept[version])

    def commit(self, claim: Consume[BatchOwned], *, keep: bool) -> None:
        """Make a claim the current state.

        Args:
            claim: of a finished turn.
            keep: the state before it stays as the automatic checkpoint; else it is replaced,
                unless a mark names it.
        """
        self.drop_before()
        old, self.current = self.current, NO_STATE
        stays = keep or self._is_named(old) or old not in self.kept
        if stays or old is NO_STATE or not self._started_here(claim):
            state = self._port.commit(claim, replaces=None)
            self.before = old if keep else NO_STATE
            self._let_go(old)
        else:
            replaced = self.kept.pop(old)
            state = self._port.commit(claim, replaces=replaced)
        self.current = self._view.name_of(state).version
        self.kept[self.current] = state

    def move(self, version: int, claim: Consume[BatchOwned]) -> bool:
        """Put an unchanged copy of a state, in another place, in its place; its name stays.

        Returns:
            False: the state is not here any more, and the copy was rolled back.
        """
        if version not in self.kept:
            self._port.rollback(claim)
            return False
        moved = self.kept.pop(version)
        self.kept[version] = self._port.commit(claim, replaces=moved)
        return True

    def cut(self, length: int) -> bool:
        """Drop all that lies beyond a log of this length; the furthest that is left is current.

        Returns:
            Whether the current state had to go.
        """
        for name, mark in list(self.marks.items()):
            if mark.length > length:
                del self.marks[name]
        for version in list(self.kept):
            if self._view.position(self.kept[version]) > length - 1:
                self._port.close(self.kept.pop(version))
        has_gone = self.current is not NO_STATE and self.current not in self.kept
        if has_gone:
            self.current = self._furthest()
        if has_gone or self.before not in self.kept:
            self.before = NO_STATE
        for version in list(self.kept):
            self._let_go(version)
        return has_gone

    def drop_before(self) -> bool:
        """Forget the automatic checkpoint; a state that only marks name now counts as theirs.

        Returns:
            Whether a state was closed.
        """
        before, self.before = self.before, NO_STATE
        return self._let_go(before) or (before != NO_STATE and self.bound_marks())

    def give_up(self, version: int) -> bool:
        """Close a state, whatever names it. False when it is no longer here."""
        if version not in self.kept:
            return False
        was_in_use = self._is_in_use(version)
        if was_in_use:
            # No turn starts from an automatic checkpoint: without the state it only takes room.
            before, self.before = self.before, NO_STATE
            if before != version:
                self._let_go(before)
        if version == self.current:
            self.current = NO_STATE
        for name, mark in self.marks.items():
            if mark.version == version:
                self.marks[name] = attrs.evolve(mark, version=NO_STATE)
        self._port.close(self.kept.pop(version))
        if was_in_use:
            self.bound_marks()  # what was shared with it is the marks' alone now
        return True

    def set_mark(self, name: str, mark: Mark) -> None:
        """Add a mark; one of the same name gives way."""
        old = self.marks.pop(name, None)
        self.marks[name] = mark
        if old is not None:
            self._let_go(old.version)
        self.bound_marks()

    def drop_mark(self, name: str) -> None:
        """Forget a mark, and its state if nothing else names it."""
        self._let_go(self.marks.pop(name).version)

    def bytes_of(self, mark: Mark) -> int:
        """Memory that comes back when a mark's state alone is closed; 0 for the current one's."""
        if mark.version is NO_STATE or self._is_in_use(mark.version):
            return 0
        return self._bytes_of([mark.version])

    def bound_marks(self) -> bool:
        """Give up marked states, the oldest first, until the rest is within its bytes.

        Returns:
            Whether one was closed.
        """
        limit = self._costs.max_marked_bytes
        if limit is None or not self.marks:
            return False
        only_marked = sorted(version for version in self.kept if not self._is_in_use(version))
        has_closed = False
        while only_marked and self._bytes_of(only_marked) > limit:
            has_closed |= self.give_up(only_marked.pop(0))
        return has_closed

    def close(self) -> None:
        """Close all that is kept."""
        self.current = self.before = NO_STATE
        self.marks.clear()
        for version in list(self.kept):
            self._port.close(self.kept.pop(version))

    def _bytes_of(self, versions: Sequence[int]) -> int:
        found = 0
        for place in (Place.DEVICE, Place.HOST):
            gain = self._view.simulate(place)
            for version in versions:
                gain.base(self.name_of(version))
            found += gain.slots * self._costs.slot_bytes + gain.pages * self._costs.page_bytes
        return found

    def _furthest(self) -> int | NoState:
        """The kept state that has absorbed most; of equals, the one that came last."""
        found: int | NoState = NO_STATE
        for version in self.kept:
            if self.position(version) >= self.position(found):
                found = version
        return found

    def _started_here(self, claim: BatchOwned) -> bool:
        """Whether a claim started from a state of this session, and not from an image, say."""
        origin = self._view.origin_of(claim)
        return origin is not None and origin.holder == self._holder

    def _is_in_use(self, version: int | NoState) -> bool:
        """Whether it is named by more than marks, which then keep nothing in addition."""
        return version in (self.current, self.before)

    def _is_named(self, version: int | NoState) -> bool:
        marked = (mark.version for mark in self.marks.values())
        return self._is_in_use(version) or version in marked

    def _let_go(self, version: int | NoState) -> bool:
        """Close a state that nothing names any more."""
        if version is NO_STATE or version not in self.kept or self._is_named(version):
            return False
        self._port.close(self.kept.pop(version))
        return True
