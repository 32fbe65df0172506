"""Who holds which numbered place, by what the log says; several holders are a finding."""

import attrs

__all__ = ["Holder", "Pool"]

Holder = tuple[str, int]
"""``("claim", id)`` or ``("run", id)``."""


@attrs.define(eq=False)
class Pool:
    """The slots, or the pages, of one engine.

    A sound log gives each place at most one holder. A second one is kept beside the first, so that
    the first of them that gives the place back is seen to free it under the other.
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
        """Places that nobody holds."""
        return self.capacity - len(self._holder)

    def take(self, place: int, holder: Holder) -> str | None:
        """Give the place to the holder; returns what is wrong with that, or None."""
        present = self._holder.get(place)
        if present is not None:
            self._others.setdefault(place, []).append(holder)
            return (
                f"{self.what} {place} was taken by {_name(holder)} while {_name(present)} owns it"
            )
        self._holder[place] = holder
        if place not in self._known:
            self._known.add(place)
            if len(self._known) > self.capacity:
                return f"{self.what} {place} lies outside a pool of {self.capacity}"
        return None

    def give(self, place: int, holder: Holder) -> str | None:
        """Take the place back from the holder; returns what is wrong with that, or None."""
        present = self._holder.get(place)
        others = self._others.get(place, [])
        if present != holder and holder not in others:
            return self._not_yours(place, holder)
        if not others:
            del self._holder[place]
            self._given_early.discard(place)
            return None
        if present == holder:
            self._holder[place] = others.pop(0)
        else:
            others.remove(holder)
        if not others:
            del self._others[place]
        if place in self._given_early:
            self._given_early.discard(place)
            return None
        keeper = _name(self._holder[place])
        return f"{self.what} {place} was given back by {_name(holder)} while {keeper} owns it"

    def give_wrongly(self, place: int, giver: Holder) -> str:
        """Somebody who may not gave the place back; returns that. Its holder keeps it."""
        if place in self._holder:
            self._given_early.add(place)
        return self._not_yours(place, giver)

    def pass_on(self, place: int, holder: Holder, to: Holder) -> str | None:
        """Move the place from one holder to another without freeing it."""
        if self._holder.get(place) != holder:
            return f"{self.what} {place} was frozen by {_name(holder)}, which doesn't own it alone"
        self._holder[place] = to
        return None

    def _not_yours(self, place: int, giver: Holder) -> str:
        present = self._holder.get(place)
        owner = "nobody owns it" if present is None else f"{_name(present)} owns it"
        return f"{self.what} {place} was given back by {_name(giver)} but {owner}"


def _name(holder: Holder) -> str:
    return f"{holder[0]} {holder[1]}"
