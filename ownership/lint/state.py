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
    root: tuple[int, int] | None = None
    """The value that this was known of before paths met, and by which path; None: on any."""


Value = int
Root = tuple[Value, int]
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
    initial: dict[str, Facts] = attrs.field(factory=dict[str, Facts])
    """What a field holds as long as nobody has touched it; shared by all states of a function."""
    made: dict[Value, int] = attrs.field(factory=dict[Value, int])
    """How often a site has made its value on the way here."""
    earlier: dict[Value, Value] = attrs.field(factory=dict[Value, Value])
    """By value: what stands for the one that its site has made before; shared as well."""

    def copy(self) -> "State":
        """Another state that begins alike."""
        return State(
            self.places.copy(),
            self.facts.copy(),
            self.parts.copy(),
            self.types.copy(),
            self.lent.copy(),
            self.initial,
            self.made.copy(),
            self.earlier,
        )

    def leaves(self, value: Value | None) -> list[Value]:
        """The values behind a value: itself, or the known elements."""
        if value is None:
            return []
        parts = self.parts.get(value)
        if parts is None:
            return [value] if value in self.facts else []
        return [leaf for part in parts for leaf in self.leaves(part)]

    def roots(self, value: Value) -> set[Root]:
        """The values that a joint value may be, each on its path; itself, when it is none."""
        return {
            fact.root or (value, 0)
            for fact in self.facts[value]
            if fact.status not in {Status.PLAIN, Status.MOVED}
        }

    def follow(self, roots: set[Root], change: Callable[[Fact], Fact]) -> None:
        """Let other values that may be the same follow a change."""
        for value, facts in self.facts.items():
            touched = [
                fact
                for fact in facts
                if fact.status not in {Status.PLAIN, Status.MOVED}
                and any(_may_be(fact.root or (value, 0), root) for root in roots)
            ]
            if touched:
                self.facts[value] = facts.difference(touched) | {change(one) for one in touched}

    def leave_path(self, roots: set[Root]) -> None:
        """These values are known not to be here: nor is what else was known on their paths."""
        for value, facts in self.facts.items():
            kept = frozenset(
                fact
                for fact in facts
                if fact.status in {Status.PLAIN, Status.MOVED}
                or not any(_is_on(fact.root or (value, 0), root) for root in roots)
            )
            self.facts[value] = kept or facts

    def begin_anew(self, value: Value, earlier: Value) -> None:
        """A site makes a value again: what is known of joint values is of the earlier one."""
        self.earlier[value] = earlier
        self.made[value] = self.made.get(value, 0) + 1
        self._make_earlier(value, earlier)

    def roots_that_may_be(self) -> set[Value]:
        """The values that joint values may be."""
        return {
            fact.root[0] for facts in self.facts.values() for fact in facts if fact.root is not None
        }

    def catch_up(self, other: "State") -> "State":
        """Where the other side has made a value anew, what is known here is of the earlier one."""
        if self.made == other.made:
            return self
        behind = [
            value
            for value in self.roots_that_may_be()
            if self.made.get(value, 0) < other.made.get(value, 0)
        ]
        if not behind:
            return self
        result = self.copy()
        for value in behind:
            result._make_earlier(value, self.earlier[value])
        return result

    def _make_earlier(self, value: Value, earlier: Value) -> None:
        for one, facts in self.facts.items():
            if any(fact.root is not None and fact.root[0] == value for fact in facts):
                self.facts[one] = frozenset(
                    fact._replace(root=(earlier, fact.root[1]))
                    if fact.root is not None and fact.root[0] == value
                    else fact
                    for fact in facts
                )

    def holders(self, value: Value) -> list[str]:
        """Places that name a value, alone or among others."""
        return [place for place, held in self.places.items() if value in self.leaves(held)]

    def is_known(self, value: Value) -> bool:
        """Whether a place names a value, or a joint value may be it."""
        return bool(self.holders(value)) or value in self.roots_that_may_be()

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
        known: tuple[dict[str, Value], dict[str, Type]] = self.places, self.types
        for table in known:
            for place in [place for place in table if place.startswith(prefix)]:
                del table[place]

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


Pair = tuple[Value | None, Value | None]
"""What a place names on either side."""


def join_all(states: Iterable[State | None], make: Callable[[Hashable], Value]) -> State | None:
    """Join any number of states, unreachable ones left out."""
    result: State | None = None
    for number, state in enumerate(states):
        if state is not None:
            result = state if result is None else join(result, state, _numbered(make, number))
    return result


def _numbered(make: Callable[[Hashable], Value], number: int) -> Callable[[Hashable], Value]:
    return lambda key: make((number, key))


def join(first: State, second: State, make: Callable[[Hashable], Value]) -> State:
    """What is known where two paths meet; ``make`` numbers joint values by their first place."""
    first, second = first.catch_up(second), second.catch_up(first)
    result = State(initial=first.initial, earlier=first.earlier)
    result.made = {**first.made, **second.made}
    result.made.update(
        {one: max(times, second.made.get(one, 0)) for one, times in first.made.items()}
    )
    groups = _groups(first, second)
    site = make("<site>")
    paths = 2 * site, 2 * site + 1
    for pair, (name, places) in groups.items():
        value = _known(first, second, pair, name)
        parts = None if value is None else first.parts.get(value)
        if value is not None and parts is not None and parts == second.parts.get(value):
            result.parts[value] = parts
            result.places.update(dict.fromkeys(places, value))
            continue
        if value is None or parts is not None or value in second.parts:
            value = make(name)
        facts = _both(first, second, pair, name, value, paths)
        known = result.facts.get(value, frozenset[Fact]()) | facts
        result.facts[value] = known or frozenset({Fact(Status.PLAIN)})
        result.places.update(dict.fromkeys(places, value))
    _keep_loose(result, first, second)
    for place, kind in first.types.items():
        other = second.types.get(place)
        if other is not None:
            result.types[place] = kind if kind == other else union(kind, other)
    result.lent = {**first.lent, **second.lent}
    return result


def _both(
    first: State, second: State, pair: Pair, name: str, value: Value, paths: tuple[int, int]
) -> Facts:
    """What either side knows; a side where the place names nothing that is followed, that."""
    facts: set[Fact] = set()
    for state, known, path in zip((first, second), pair, paths, strict=True):
        if known is None and "." in name:
            facts |= state.initial[name]
        elif known is None and name in state.types:
            facts |= _plain(state.types[name])
        for leaf in state.leaves(known):
            for fact in state.facts[leaf]:
                is_rooted = fact.root is not None or leaf == value or fact.status is Status.PLAIN
                facts.add(fact if is_rooted else fact._replace(root=(leaf, path)))
    return frozenset(facts)


def _may_be(root: Root, other: Root) -> bool:
    """Whether two are one value; not on the two sides of one meeting."""
    is_other_side = root[1] != other[1] and root[1] // 2 == other[1] // 2
    return root[0] == other[0] and (0 in {root[1], other[1]} or not is_other_side)


def _is_on(root: Root, other: Root) -> bool:
    """Whether one value is known by one path; a path of 0 is any."""
    return root[0] == other[0] and 0 in {root[1], other[1], root[1] - other[1]}


def _plain(kind: Type) -> Facts:
    """What a place names that is not followed."""
    known = [one for one in members(kind) if isinstance(one, Instance)]
    return frozenset([Fact(Status.PLAIN, one) for one in known] or [Fact(Status.PLAIN)])


def _known(first: State, second: State, pair: Pair, name: str) -> Value | None:
    """The value that both sides name, or the one side where the place is bound at all."""
    one, two = pair
    if "." in name or (one is not None and two is not None):
        return one if one == two else None
    is_bound = name in (first if one is None else second).types
    return None if is_bound else (two if one is None else one)


def _groups(first: State, second: State) -> dict[Pair, tuple[str, list[str]]]:
    """Places by what they name on either side; sides that share a value are one group."""
    pairs: dict[Pair, tuple[str, list[str]]] = {}
    by_side: dict[tuple[int, Value], Pair] = {}

    def unbound(place: str) -> bool:
        return any(
            place not in state.places and place not in state.types for state in (first, second)
        )

    # One that is bound on both sides tells more than one that is not, and names their group.
    for place in sorted({*first.places, *second.places}, key=lambda one: (unbound(one), one)):
        pair = first.places.get(place), second.places.get(place)
        if "." in place and None in pair:
            # A field that one side has not touched: as it was, if that is known.
            if place in first.initial:
                pairs[pair] = place, [place]
            continue
        for side, value in enumerate(pair):
            is_unbound = pair[1 - side] is None and place not in (second, first)[side].types
            if value is not None and is_unbound:
                pair = by_side.get((side, value), pair)
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
