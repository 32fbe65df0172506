"""The moves themselves: using, moving, dropping and holding a value, and what each may report."""

import ast
from abc import ABC, abstractmethod
from collections.abc import Hashable

from ownership.lint.index import FunctionInfo
from ownership.lint.kinds import Kinds
from ownership.lint.operands import Operand, Sink, span
from ownership.lint.state import Fact, State, Status, Value
from ownership.lint.types import NONE, Type

__all__ = ["NOBODYS", "Moves", "text_of"]

_OURS = frozenset({Status.LIVE})
NOBODYS = frozenset({Status.FREE, Status.PLAIN})


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
        self.silent: int = 0
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
        self.emptied: dict[Value, dict[str, Value]] = {}
        """By message: the handles that are taken out of it; each by a value that tells where."""
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
        if value in state.facts:
            self.set_aside(state, value)
        state.begin_anew(value, self.earlier(value))
        state.parts.pop(value, None)
        for taken in self.emptied.get(value, {}).values():
            state.facts.pop(taken, None)
        state.facts[value] = self.kinds.facts(kind, status)
        self.origins[value] = node
        self.labels[value] = text_of(node)
        self.bound.discard(value)
        return value

    def earlier(self, value: Value) -> Value:
        """What stands for the value that its site has made before."""
        return self.number(("earlier", value))

    def set_aside(self, state: State, value: Value) -> None:
        """A loop makes a second value where an alias may still name the first."""
        if not state.holders(value):
            return
        old = self.earlier(value)
        self.origins[old], self.labels[old] = self.origins[value], self.labels[value]
        self.bound.add(old)
        known = state.facts.get(old, frozenset()) if state.is_known(old) else frozenset[Fact]()
        state.facts[old] = state.facts[value] | known
        for place, held in list(state.places.items()):
            if held == value:
                state.places[place] = old

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
        text = text_of(operand.node)
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
            and not (fact.status is Status.PLAIN and fact.where is not None and fact.type == NONE)
            for fact in facts
        )
        self.blame(value)
        name = self.name_of(operand, value)
        where = min(gone, key=lambda fact: span(fact.where or operand.node)).where
        if left:
            message = f"`{name}` is used, but was moved on some path"
            self.report("OWN002", message, operand.node, (where, "moved here"))
        else:
            self.report(
                "OWN001",
                f"`{name}` is used after it was moved",
                operand.node,
                (where, "moved here"),
            )
        state.facts[value] = frozenset(
            fact._replace(status=Status.FREE) if fact.status is Status.MOVED else fact
            for fact in facts
        )
        return True

    # Moving

    def move(
        self, state: State, operand: Operand, *, lease: Value | None = None, ends: bool = False
    ) -> None:
        """Move what an operand holds; into a lease, from which it may come back.

        What nobody owns is moved by a call that ``ends`` it alone: to hand it on is a use.
        """
        before: list[tuple[Value, frozenset[Fact]]] = []
        for value in self.leaves(state, operand):
            if self._check_moved(state, operand, value):
                self.release(state, Operand(operand.node, value=value))
                continue
            if not ends and all(fact.status in NOBODYS for fact in state.facts[value]):
                continue
            before.append((value, state.facts[value]))
            if lease is None:
                self._check_owned(state, operand, value)
            self._move_one(state, value, operand.node)
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
                self.blame(value)
                message = f"`{self.name_of(operand, value)}` is used after it was moved"
                self.report("OWN001", message, operand.node, (fact.where, "moved here"))
                state.facts[value] = frozenset({fact._replace(status=Status.FREE)})
                return

    def _move_one(self, state: State, value: Value, where: ast.AST) -> None:
        roots = state.roots(value)
        state.facts[value] = frozenset(
            Fact(Status.PLAIN if fact.status is Status.PLAIN else Status.MOVED, fact.type, where)
            for fact in state.facts[value]
        )
        state.follow(roots, lambda fact: Fact(Status.MOVED, fact.type, where))
        self.spend_carrier(state, value, where)

    def spend_carrier(self, state: State, value: Value, where: ast.AST) -> None:
        """A handle has left its message; it was all that the message had to give."""
        carrier = self.carrier.get(value)
        if carrier is not None and carrier in state.facts:
            name = self.labels[value].rpartition(".")[2]
            taken = self.number(("taken", carrier, name))
            self.emptied.setdefault(carrier, {})[name] = taken
            state.facts[taken] = frozenset({Fact(Status.MOVED, None, where)})
            state.facts[carrier] = frozenset(
                fact._replace(status=Status.FREE)
                if fact.status in {Status.LIVE, Status.ELEMENT}
                else fact
                for fact in state.facts[carrier]
            )

    def release(self, state: State, operand: Operand) -> None:
        """Stop following a value that a finding was reported on, or that went out of sight."""
        for value in self.leaves(state, operand):
            roots = state.roots(value)
            state.facts[value] = frozenset(
                fact if fact.status is Status.PLAIN else fact._replace(status=Status.FREE)
                for fact in state.facts[value]
            )
            state.follow(roots, lambda fact: fact._replace(status=Status.FREE))

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


def text_of(node: ast.AST) -> str:
    if isinstance(node, ast.arg):
        return node.arg
    try:
        return ast.unparse(node)
    except (AttributeError, ValueError):  # pragma: no cover  what has no text form
        return type(node).__name__


def _is_field(operand: Operand) -> bool:
    return isinstance(operand.node, ast.Attribute)
