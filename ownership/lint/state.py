"""What is known at one point of a function: which place names which value, and its condition.

A *value* is one handle (or a container, or a message) by its site of creation; a *place* is a
name or an attribute chain. Two places that name one value are aliases: what happens to the value
through one of them is seen through the other. Where branches meet, places that differ get a joint
value with the facts of both.
"""

import ast
import enum
from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple

import attrs

from ownership.lint.types import Instance, Type, members, union

__all__ = ["Fact", "State", "Status", "Value", "join", "join_all"]


class Status(enum.IntEnum):
    """The condition of a value on some path."""

    PLAIN = 0
    """No handle: ``None``, ``Refused``, an empty container."""
    LIVE = 1
    """Ours to end."""
    BORROWED = 2
    """Somebody else's."""
    FIELD = 3
    """Held by an owner field."""
    MOVED = 4
    """Ended, or somebody else's by now."""
    NAMED = 5
    """A name for what the device owns: may be kept anywhere, ends once."""
    FREE = 6
    """May be ended once, and need not be."""
    ELEMENT = 7
    """In a container that is ours."""


class Fact(NamedTuple):
    """One alternative: a condition, the class, and where it came to be so."""

    status: Status
    type: Instance | None = None
    where: ast.AST | None = None


Value = int
Facts = frozenset[Fact]


@attrs.define(eq=False)
class State:
    """Places, values and types at one point. Copied before it forks."""

    places: dict[str, Value] = attrs.field(factory=dict[str, Value])
    facts: dict[Value, Facts] = attrs.field(factory=dict[Value, Facts])
    parts: dict[Value, tuple[Value | None, ...]] = attrs.field(
        factory=dict[Value, tuple[Value | None, ...]]
    )
    """Tuples and lists whose elements are known one by one."""
    types: dict[str, Type] = attrs.field(factory=dict[str, Type])
    lent: dict[Value, tuple[tuple[Value, Facts], ...]] = attrs.field(
        factory=dict[Value, tuple[tuple[Value, Facts], ...]]
    )
    """By lease: what was moved into it, and how it was before."""

    def copy(self) -> "State":
        """Another state that begins alike."""
        return State(
            self.places.copy(),
            self.facts.copy(),
            self.parts.copy(),
            self.types.copy(),
            self.lent.copy(),
        )

    def leaves(self, value: Value | None) -> list[Value]:
        """The values behind a value: itself, or the known elements."""
        if value is None:
            return []
        parts = self.parts.get(value)
        if parts is None:
            return [value] if value in self.facts else []
        return [leaf for part in parts for leaf in self.leaves(part)]

    def holders(self, value: Value) -> list[str]:
        """Places that name a value, alone or among others."""
        return [place for place, held in self.places.items() if value in self.leaves(held)]

    def is_same(self, other: "State") -> bool:
        """Whether nothing more is known."""
        return (
            self.places == other.places
            and self.facts == other.facts
            and self.parts == other.parts
            and self.types == other.types
        )

    def forget(self, prefix: str) -> None:
        """Drop all places below a place."""
        for place in [place for place in self.places if place.startswith(prefix)]:
            del self.places[place]
        for place in [place for place in self.types if place.startswith(prefix)]:
            del self.types[place]

    def collapse(self, value: Value, kind: Instance | None, where: ast.AST) -> None:
        """Stop knowing the elements of a tuple or list one by one."""
        leaves = self.leaves(value)
        facts = frozenset(fact for leaf in leaves for fact in self.facts[leaf])
        statuses = {fact.status for fact in facts} - {Status.PLAIN} or {Status.PLAIN}
        for leaf in leaves:
            self.facts[leaf] = moved(self.facts[leaf], where)
        self.parts.pop(value, None)
        self.facts[value] = frozenset(Fact(status, kind, None) for status in statuses)


def moved(facts: Facts, where: ast.AST) -> Facts:
    """The facts after a move."""
    return frozenset(
        fact if fact.status is Status.PLAIN else Fact(Status.MOVED, fact.type, where)
        for fact in facts
    )


def join_all(states: Iterable[State | None], make: Callable[[Hashable], Value]) -> State | None:
    """Join any number of states, unreachable ones left out."""
    result: State | None = None
    for number, state in enumerate(states):
        if state is not None:
            result = state if result is None else join(result, state, lambda key, n=number: make((n, key)))
    return result


def join(first: State, second: State, make: Callable[[Hashable], Value]) -> State:
    """What is known where two paths meet; ``make`` numbers joint values by their first place."""
    result = State()
    groups = _groups(first, second)
    for pair, (name, places) in groups.items():
        one, two = pair
        value = _known(one, two)
        if value is None:
            value = make(name)
        if one == two and one is not None:
            parts = first.parts.get(one)
            if parts is not None and parts == second.parts.get(one):
                result.parts[one] = parts
                for place in places:
                    result.places[place] = one
                continue
            if parts is not None or one in second.parts:
                value = make(name)
        one, two = (one or two, two or one) if value in pair else pair
        facts = _facts_of(first, one) | _facts_of(second, two)
        for state, known in ((first, pair[0]), (second, pair[1])):
            if known is None and name in state.types:
                facts |= _plain(state.types[name])
        if not facts:
            continue
        result.facts[value] = result.facts.get(value, frozenset()) | facts
        for place in places:
            result.places[place] = value
    _keep_loose(result, first, second)
    for place, kind in first.types.items():
        other = second.types.get(place)
        if other is not None:
            result.types[place] = kind if kind == other else union(kind, other)
    result.lent = {**first.lent, **second.lent}
    return result


def _plain(kind: Type) -> Facts:
    """What a place names that is not followed."""
    known = [one for one in members(kind) if isinstance(one, Instance)]
    return frozenset(Fact(Status.PLAIN, one) for one in known or [None])


def _known(one: Value | None, two: Value | None) -> Value | None:
    """The value that both sides name, or the only side that names one."""
    if one is None or two is None:
        return two if one is None else one
    return one if one == two else None


def _facts_of(state: State, value: Value | None) -> Facts:
    facts: set[Fact] = set()
    for leaf in state.leaves(value):
        facts |= state.facts[leaf]
    return frozenset(facts)


def _groups(
    first: State, second: State
) -> dict[tuple[Value | None, Value | None], tuple[str, list[str]]]:
    """Places by what they name on either side; sides that share a value are one group."""
    pairs: dict[tuple[Value | None, Value | None], tuple[str, list[str]]] = {}
    by_side: dict[tuple[int, Value], tuple[Value | None, Value | None]] = {}
    for place in sorted({*first.places, *second.places}):
        pair = first.places.get(place), second.places.get(place)
        for side, value in enumerate(pair):
            if value is not None:
                pair = by_side.setdefault((side, value), pair) if pair[1 - side] is None else pair
        pairs.setdefault(pair, (place, []))[1].append(place)
        for side, value in enumerate(pair):
            if value is not None:
                by_side.setdefault((side, value), pair)
    return pairs


def _keep_loose(result: State, first: State, second: State) -> None:
    """Values that no place names (elements, temporaries, parts) keep what is known of them."""
    named = {
        leaf
        for state in (first, second)
        for value in state.places.values()
        for leaf in [*state.leaves(value), value]
    }
    in_parts = {part for parts in result.parts.values() for part in parts if part is not None}
    for state in (first, second):
        for value, facts in state.facts.items():
            if value not in named or value in in_parts:
                result.facts[value] = result.facts.get(value, frozenset()) | facts
        for value, parts in state.parts.items():
            if value in in_parts or value not in named:
                result.parts.setdefault(value, parts)
