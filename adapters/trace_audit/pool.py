"""Who holds which numbered slot or page, by what the log says; several holders are a finding."""

import attrs

__all__ = ["Holder", "Pool"]

Holder = tuple[str, int]
"""``("claim", id)`` or ``("run", id)``."""


@attrs.define(eq=False)
class Pool:
    """The slots, or the pages, of one engine.

    A sound log gives each number at most one holder. A second one is kept beside the first, so that
    the first of them that gives it back is seen to free it under the other.
    """

    what: str
    """``slot`` or ``page``, for messages."""
    capacity: int = 0
    _holder: dict[int, Holder] = attrs.field(factory=dict[int, Holder])
    _others: dict[int, list[Holder]] = attrs.field(factory=dict[int, list[Holder]])
    _given_early: set[int] = attrs.field(factory=set[int])
    _known: set[int] = attrs.field(factory=set[int])

    @property
    def free(self) -> int:
        """Numbers that nobody holds."""
        return self.capacity - len(self._holder)

    def free_below(self, limit: int) -> int:
        """Numbers below this one that nobody holds."""
        return limit - sum(number < limit for number in self._holder)

    def take(self, number: int, holder: Holder) -> str | None:
        """Give the number to the holder; returns what is wrong with that, or None."""
        present = self._holder.get(number)
        if present is not None:
            self._others.setdefault(number, []).append(holder)
            return (
                f"{self.what} {number} was taken by {_name(holder)} while {_name(present)} owns it"
            )
        self._holder[number] = holder
        if number not in self._known:
            self._known.add(number)
            if len(self._known) > self.capacity:
                return f"{self.what} {number} lies outside a pool of {self.capacity}"
        return None

    def give(self, number: int, holder: Holder) -> str | None:
        """Take the number back from the holder; returns what is wrong with that, or None."""
        present = self._holder.get(number)
        others = self._others.get(number, [])
        if present != holder and holder not in others:
            return self._not_yours(number, holder)
        if not others:
            del self._holder[number]
            self._given_early.discard(number)
            return None
        if present == holder:
            self._holder[number] = others.pop(0)
        else:
            others.remove(holder)
        if not others:
            del self._others[number]
        if number in self._given_early:
            self._given_early.discard(number)
            return None
        keeper = _name(self._holder[number])
        return f"{self.what} {number} was given back by {_name(holder)} while {keeper} owns it"

    def give_wrongly(self, number: int, giver: Holder) -> str:
        """Somebody who may not gave the number back; returns that. Its holder keeps it."""
        if number in self._holder:
            self._given_early.add(number)
        return self._not_yours(number, giver)

    def pass_on(self, number: int, holder: Holder, to: Holder) -> str | None:
        """Move the number from one holder to another without freeing it."""
        if self._holder.get(number) != holder:
            return f"{self.what} {number} was frozen by {_name(holder)}, which doesn't own it alone"
        self._holder[number] = to
        return None

    def _not_yours(self, number: int, giver: Holder) -> str:
        present = self._holder.get(number)
        owner = "nobody owns it" if present is None else f"{_name(present)} owns it"
        return f"{self.what} {number} was given back by {_name(giver)} but {owner}"


def _name(holder: Holder) -> str:
    return f"{holder[0]} {holder[1]}"
