"""The moves themselves: using, moving, dropping and holding a value, and what each may report."""

import ast
from abc import ABC, abstractmethod
from collections.abc import Hashable

import attrs

from ownership.lint.findings import Finding, Note
from ownership.lint.index import FunctionInfo, Module
from ownership.lint.kinds import Kinds
from ownership.lint.rules import HELP
from ownership.lint.state import Fact, State, Status, Value, moved
from ownership.lint.types import ANY, Instance, Type

__all__ = ["Moves", "Operand", "Sink"]

_OURS = frozenset({Status.LIVE})


@attrs.frozen
class Operand:
    """What an expression gave: its type, and the value when it is followed."""

    node: ast.AST
    type: Type = ANY
    value: Value | None = None
    place: str | None = None
    parts: "tuple[Operand, ...] | None" = None
    """A tuple, or what is iterated side by side."""
    is_keys: bool = False
    """Iterating it gives nothing that is followed."""


@attrs.define(eq=False)
class Sink:
    """Findings of one file, each once."""

    path: str
    module: Module
    found: dict[tuple[str, int, int, str], Finding] = attrs.field(
        factory=dict[tuple[str, int, int, str], Finding]
    )

    def add(self, rule: str, message: str, node: ast.AST, note: tuple[ast.AST, str] | None) -> None:
        line, column, end = _span(node)
        source = self._line(line)
        said: Note | None = None
        if note is not None:
            at, start, stop = _span(note[0])
            if at:
                said = Note(at, start, stop, self._line(at), note[1])
        key = rule, line, column, message
        if key not in self.found:
            self.found[key] = Finding(
                rule, self.path, line, column, end, source, message, said, HELP[rule]
            )

    def _line(self, number: int) -> str:
        lines = self.module.lines
        return lines[number - 1] if 0 < number <= len(lines) else ""


def _span(node: ast.AST) -> tuple[int, int, int]:
    line, column = getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
    end_line, end = getattr(node, "end_lineno", line), getattr(node, "end_col_offset", column + 1)
    return line, column + 1, (end if end_line == line else 10_000) + 1


class Moves(ABC):
    """One function under check: its values, its reports.

    Attributes:
        silent: above zero, nothing is reported: a loop is still being followed to its fix point,
            or a block tests a refusal.
    """

    def __init__(self, function: FunctionInfo, kinds: Kinds, sink: Sink, *, is_test: bool) -> None:
        self.function = function
        self.module = function.module
        self.kinds = kinds
        self.members = kinds.members
        self.sink = sink
        self.silent = 0
        self.is_test = is_test
        self.labels: dict[Value, str] = {}
        self.origins: dict[Value, ast.AST] = {}
        self.bound: set[Value] = set()
        self.carrier: dict[Value, Value] = {}
        self.container: dict[Value, Value] = {}
        self.temporaries: list[Value] = []
        """What the statement at hand has made."""
        self.landed: dict[Value, tuple[tuple[Value, frozenset[Fact]], ...]] = {}
        """By what a landing gave: what had gone into the lease."""
        self.blamed: set[Value] = set()
        self.is_dead = False
        """A call that never returns was made."""
        self.raising: list[list[State]] = []
        """States before each call, for every ``try`` around it."""
        self.handled: dict[int, str] = {}
        """Lines on which a handle is named."""
        self._numbers: dict[Hashable, Value] = {}

    # Values

    def number(self, key: Hashable) -> Value:
        """The value of a site: the same whenever the site is passed again."""
        return self._numbers.setdefault(key, len(self._numbers) + 1)

    def fresh(
        self, state: State, node: ast.AST, kind: Type, status: Status, tag: Hashable = ""
    ) -> Value:
        """A new value made at a node."""
        value = self.number((id(node), tag))
        if value in state.facts and state.holders(value):
            self._set_aside(state, value)
        state.parts.pop(value, None)
        state.facts[value] = self.kinds.facts(kind, status)
        self.origins[value] = node
        self.labels[value] = _text(node)
        self.bound.discard(value)
        return value

    def _set_aside(self, state: State, value: Value) -> None:
        """A loop makes a second value where an alias still names the first."""
        old = self.number(("earlier", value))
        self.origins[old], self.labels[old] = self.origins[value], self.labels[value]
        self.bound.add(old)
        state.facts[old] = state.facts[value] | state.facts.get(old, frozenset())
        for place, held in list(state.places.items()):
            if held == value:
                state.places[place] = old
        for whole, parts in list(state.parts.items()):
            state.parts[whole] = tuple(old if part == value else part for part in parts)

    def leaves(self, state: State, operand: Operand) -> list[Value]:
        """The values in an operand."""
        if operand.parts is not None:
            return [leaf for part in operand.parts for leaf in self.leaves(state, part)]
        return state.leaves(operand.value)

    # Reports

    def report(
        self, rule: str, message: str, node: ast.AST, note: tuple[ast.AST | None, str] | None = None
    ) -> None:
        """Add a finding, unless nothing is to be reported here."""
        if self.silent:
            return
        if rule == "OWN003" and self.is_test:
            return
        said = None if note is None or note[0] is None else (note[0], note[1])
        self.sink.add(rule, message, node, said)

    def blame(self, value: Value) -> None:
        """A finding is about this value: that it is dropped as well is no second mistake."""
        if not self.silent:
            self.blamed.add(value)

    def taken(self, value: Value) -> tuple[ast.AST | None, str]:
        """A note where a value came from."""
        return self.origins.get(value), "taken here"

    def name_of(self, operand: Operand, value: Value) -> str:
        """How a message names a value: by the expression at hand."""
        text = _text(operand.node)
        if operand.parts is not None or len(text) > 60:
            return self.labels.get(value, text)
        return text

    # Using

    def use(self, state: State, operand: Operand) -> None:
        """Report a use of what was moved."""
        for value in self.leaves(state, operand):
            self._check_moved(state, operand, value)

    def _check_moved(self, state: State, operand: Operand, value: Value) -> bool:
        facts = state.facts[value]
        gone = [fact for fact in facts if fact.status is Status.MOVED]
        if not gone:
            return False
        left = any(
            fact.status is not Status.MOVED
            and not (fact.status is Status.PLAIN and fact.where is not None)
            for fact in facts
        )
        self.blame(value)
        name = self.name_of(operand, value)
        where = min(gone, key=lambda fact: _span(fact.where or operand.node)).where
        if left:
            message = f"`{name}` is used, but was moved on some path"
            self.report("OWN002", message, operand.node, (where, "moved here"))
        else:
            self.report("OWN001", f"`{name}` is used after it was moved", operand.node, (where, "moved here"))
        state.facts[value] = frozenset(
            fact._replace(status=Status.FREE) if fact.status is Status.MOVED else fact
            for fact in facts
        )
        return True

    # Moving

    def move(self, state: State, operand: Operand, node: ast.AST, *, lease: Value | None = None) -> None:
        """Move what an operand holds; into a lease, from which it may come back."""
        before: list[tuple[Value, frozenset[Fact]]] = []
        for value in self.leaves(state, operand):
            if self._check_moved(state, operand, value):
                self.release(state, Operand(operand.node, ANY, value))
                continue
            before.append((value, state.facts[value]))
            if lease is None:
                self._check_owned(state, operand, value)
            self._move_one(state, value, operand.node)
        if operand.value is not None and operand.value in state.parts:
            state.lent.pop(operand.value, None)
        if lease is not None:
            state.lent[lease] = (*state.lent.get(lease, ()), *before)

    def _check_owned(self, state: State, operand: Operand, value: Value) -> None:
        for fact in sorted(state.facts[value], key=lambda fact: fact.status):
            if fact.status is Status.BORROWED:
                self.blame(value)
                name = self.name_of(operand, value)
                message = f"`{name}` is borrowed, but consumed here"
                self.report("OWN004", message, operand.node, (fact.where, "borrowed here"))
                return
            if fact.status is Status.FIELD and fact.where is not None and not _is_field(operand):
                message = f"`{self.name_of(operand, value)}` is used after it was moved"
                self.report("OWN001", message, operand.node, (fact.where, "moved here"))
                state.facts[value] = frozenset({fact._replace(status=Status.FREE)})
                return

    def _move_one(self, state: State, value: Value, where: ast.AST) -> None:
        state.facts[value] = frozenset(
            Fact(Status.PLAIN if fact.status is Status.PLAIN else Status.MOVED, fact.type, where)
            for fact in state.facts[value]
        )
        carrier = self.carrier.get(value)
        if carrier is not None and carrier in state.facts:
            # Its handle was all that the message had to give.
            state.facts[carrier] = frozenset(
                fact._replace(status=Status.FREE) if fact.status is Status.LIVE else fact
                for fact in state.facts[carrier]
            )

    def release(self, state: State, operand: Operand) -> None:
        """Stop following a value that a finding was reported on, or that went out of sight."""
        for value in self.leaves(state, operand):
            state.facts[value] = frozenset(
                fact if fact.status is Status.PLAIN else fact._replace(status=Status.FREE)
                for fact in state.facts[value]
            )

    def is_ours(self, state: State, value: Value) -> bool:
        """Whether a value may have to be ended here."""
        return any(fact.status in _OURS for fact in state.facts.get(value, ()))

    def has(self, state: State, operand: Operand, *statuses: Status) -> bool:
        """Whether some value of an operand may be in one of these conditions."""
        return any(
            fact.status in statuses
            for value in self.leaves(state, operand)
            for fact in state.facts[value]
        )

    # Dropping

    def drop(self, state: State, value: Value, message: str, node: ast.AST, note: tuple[ast.AST | None, str] | None) -> None:
        """Report a value that nobody can end any more; once is enough for one mistake."""
        if value not in self.blamed:
            self.report("OWN003", message, node, note)
        state.facts[value] = frozenset(
            fact._replace(status=Status.FREE) if fact.status is not Status.PLAIN else fact
            for fact in state.facts[value]
        )

    def sweep(self, state: State, temporaries: list[Value]) -> None:
        """At the end of a statement: what it made and nothing names is dropped."""
        for value in temporaries:
            if value in self.landed:
                self._come_back(state, value)
            if value in self.bound or not self.is_ours(state, value) or state.holders(value):
                continue
            text = self.labels[value].partition("(")[0]
            message = f"the result of `{text}` is ignored, and dropped live"
            self.drop(state, value, message, self.origins[value], None)

    def _come_back(self, state: State, result: Value) -> None:
        """What a landing gives are the handles that were launched: whoever names them, has them."""
        is_ignored = (
            result not in self.bound and self.is_ours(state, result) and not state.holders(result)
        )
        if is_ignored:
            state.facts[result] = frozenset({Fact(Status.FREE)})
        for value, facts in self.landed.pop(result):
            if value not in state.facts:
                continue
            if is_ignored:
                state.facts[value] = facts
                continue
            self._lent_for_good(state, value, facts)
            state.facts[value] = frozenset(
                fact if fact.status is Status.PLAIN else fact._replace(status=Status.BORROWED)
                for fact in facts
            )

    def _lent_for_good(self, state: State, value: Value, facts: frozenset[Fact]) -> None:
        for fact in facts:
            if fact.status is Status.BORROWED:
                gone = state.facts.get(value, frozenset())
                at = next((new.where for new in gone if new.where is not None), None)
                if at is not None:
                    message = f"`{self.labels[value]}` is borrowed, but consumed here"
                    self.report("OWN004", message, at, (fact.where, "borrowed here"))

    def leave(self, state: State, node: ast.AST) -> None:
        """A path ends here: report what is still live, and what was only borrowed."""
        for value in list(state.facts):
            if self.is_ours(state, value):
                message = f"`{self.labels[value]}` is dropped: it leaves scope live"
                self.drop(state, value, message, self.origins[value], (node, "still live here"))
        for place, value in state.places.items():
            if self.is_own_field(place):
                for leaf in state.leaves(value):
                    self._check_field(state, place, leaf)
        for lent in state.lent.values():
            for value, facts in lent:
                self._lent_for_good(state, value, facts)

    def _check_field(self, state: State, place: str, value: Value) -> None:
        for fact in state.facts[value]:
            if fact.status is Status.MOVED and fact.where is not None:
                message = f"`{_text(fact.where)}` is borrowed, but consumed here"
                self.report("OWN004", message, fact.where, None)

    @abstractmethod
    def note_name(self, state: State, value: Value) -> bool:
        """Whether a value is a name, which may be kept anywhere; it is noted as kept."""
        ...

    @abstractmethod
    def is_own_field(self, place: str) -> bool:
        """Whether a place is an owner field of the method's own object."""
        ...

    @abstractmethod
    def eval(self, node: ast.expr, state: State) -> Operand:
        """Evaluate an expression, changing the state."""
        ...

    # Waiting

    def hold(self, state: State, node: ast.AST) -> None:
        """An ``await``: report what is held across it."""
        for value in list(state.facts):
            if self.is_ours(state, value):
                message = f"`{self.labels[value]}` is held across an `await`"
                self.report("OWN006", message, node, self.taken(value))

    def capture(self, state: State, operand: Operand, what: str, node: ast.AST) -> None:
        """A handle goes where its end may never run."""
        values = [value for value in self.leaves(state, operand) if not self.note_name(state, value)]
        captured = {Status.LIVE, Status.BORROWED, Status.FIELD, Status.ELEMENT}
        if any(fact.status in captured for value in values for fact in state.facts[value]):
            for value in values:
                self.blame(value)
            name = self.name_of(operand, values[0])
            message = f"`{name}` is captured by {what}, which may never run"
            self.report("OWN005", message, operand.node, self.taken(values[0]))
        else:
            self.use(state, operand)
        for value in values:
            self.release(state, Operand(operand.node, ANY, value))


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.arg):
        return node.arg
    try:
        return ast.unparse(node)
    except (AttributeError, ValueError):  # pragma: no cover  what has no text form
        return type(node).__name__


def _is_field(operand: Operand) -> bool:
    return isinstance(operand.node, ast.Attribute)


def type_name(kind: Instance) -> str:
    """The last part of a class's name."""
    return kind.name.rpartition(".")[2]


__all__ += ["moved", "type_name"]
