"""What a test tells of the values in it: ``is None``, ``isinstance``, truth, ``and``, ``not``."""

import ast
from collections.abc import Callable, Hashable, Sequence
from typing import cast

from ownership.lint.calls import Calls
from ownership.lint.operands import Operand
from ownership.lint.state import Fact, State, Status, Value, join_all
from ownership.lint.stores import path_of
from ownership.lint.types import ANY, NONE, Instance, Type, members, union

__all__ = ["Narrowing"]

Split = tuple[State | None, State | None]
"""The state where a test holds, and where it doesn't; None where that can't be."""


class Narrowing(Calls):
    """Tests split a state in two."""

    outer: dict[str, Type]
    """The types of names of the function around this one."""
    tested: dict[int, Operand]
    """What calls have given whose truth was asked for, by their nodes."""

    def joint(self, node: ast.AST) -> Callable[[Hashable], Value]:
        """How values are numbered that meet at a node."""

        def make(key: Hashable) -> Value:
            value = self.number(("joint", id(node), key))
            self.labels.setdefault(value, _place_in(key))
            self.origins.setdefault(value, node)
            self.bound.add(value)
            return value

        return make

    def joints(self, node: ast.AST, name: str, sides: int) -> list[Value]:
        """The values that a place may have got where so many sides have met at a node."""
        return [self.number(("joint", id(node), (side, name))) for side in range(1, sides)]

    def become(self, state: State, other: State) -> None:
        """Put another state's knowledge into this one."""
        state.places, state.facts, state.parts = other.places, other.facts, other.parts
        state.types, state.lent, state.made = other.types, other.lent, other.made

    def narrow(self, test: ast.expr, state: State) -> Split:
        """Evaluate a test and split."""
        match test:
            case ast.UnaryOp(op=ast.Not()):
                yes, no = self.narrow(test.operand, state)
                return no, yes
            case ast.BoolOp():
                return self._connected(test, state)
            case ast.Constant():
                return (state, None) if test.value else (None, state)
            case ast.Compare(ops=[ast.Is() | ast.Eq()], comparators=[ast.Constant(value=None)]):
                return self._by_fact(test.left, state, _is_none)
            case ast.Compare(
                ops=[ast.IsNot() | ast.NotEq()], comparators=[ast.Constant(value=None)]
            ):
                yes, no = self._by_fact(test.left, state, _is_none)
                return no, yes
            case ast.Call(func=ast.Name(id="isinstance"), args=[subject, classes]):
                return self.by_class(subject, self.classes(classes), state)
            case ast.Name() | ast.Attribute() | ast.NamedExpr():
                yes, no = self._by_fact(test, state, _is_false)
                return no, yes
            case ast.Call():
                yes, no = self._by_fact(test, state, _is_false)
                return self._alive(yes), self._alive(no)
            case _:
                self.use(state, self.eval(test, state))
                return self._alive(state), self._alive(state.copy())

    def _alive(self, state: State | None) -> State | None:
        return None if self.is_dead else state

    def _connected(self, test: ast.BoolOp, state: State) -> Split:
        is_and = isinstance(test.op, ast.And)
        stops: list[State | None] = []
        current: State | None = state
        for value in test.values:
            if current is None:
                break
            yes, no = self.narrow(value, current)
            stop, current = (no, yes) if is_and else (yes, no)
            stops.append(stop)
        stopped = join_all(stops, self.joint(test))
        return (current, stopped) if is_and else (stopped, current)

    def _by_fact(
        self, subject: ast.expr, state: State, tells: Callable[[Fact], bool | None]
    ) -> Split:
        operand = self.eval(subject, state)
        if isinstance(subject, ast.Call):
            self.use(state, operand)
            self.tested[id(subject)] = operand
        yes = self.keep(operand, state, lambda fact: tells(fact) is not False)
        no = self.keep(operand, state, lambda fact: tells(fact) is not True)
        if yes is not None and tells is _is_false:
            self._empty(operand, yes)
        if tells is _is_none:
            place = path_of(subject)
            kind = operand.type
            if no is not None and place is not None and NONE in members(kind):
                left = [member for member in members(kind) if member != NONE]
                no.types[place] = union(*left) if left else ANY
        return yes, no

    def _empty(self, operand: Operand, state: State) -> None:
        """A container that is false has nothing in it."""
        for value in state.leaves(operand.value):
            if not any("." in place for place in state.holders(value)) and self.has(
                state, operand, Status.FIELD
            ):
                continue  # An alias of the field: what is put in is the field's again.
            state.facts[value] = frozenset(
                Fact(Status.PLAIN, fact.type) if _is_false(fact) is None and fact.type else fact
                for fact in state.facts[value]
            )

    def keep(self, operand: Operand, state: State, wanted: Callable[[Fact], bool]) -> State | None:
        """A copy in which a value has only the facts that are wanted; None when it has none."""
        result = state.copy()
        value = operand.value
        if value is None or value not in state.facts:
            return result
        facts = frozenset(fact for fact in state.facts[value] if wanted(fact))
        if not facts:
            return None
        gone = result.roots(value)
        result.facts[value] = facts
        result.leave_path(gone - result.roots(value))
        return result

    # Classes

    def classes(self, node: ast.expr) -> list[Instance]:
        """The classes that a test or a pattern names; none when one is not known."""
        if isinstance(node, ast.Tuple):
            return [one for element in node.elts for one in self.classes(element)]
        kind = self.members.annotations.read(node, self.module, self.function.owner)[0]
        found = list(members(kind))
        return [one for one in found if isinstance(one, Instance)] if ANY not in found else []

    def by_class(self, subject: ast.expr, classes: Sequence[Instance], state: State) -> Split:
        """Split by what a value is an instance of."""
        operand = self.eval(subject, state)
        if not classes:
            return state.copy(), state.copy()

        def tells(fact: Fact) -> bool | None:
            return self._is_one_of(fact.type, classes)

        yes = self.keep(operand, state, lambda fact: tells(fact) is not False)
        no = self.keep(operand, state, lambda fact: tells(fact) is not True)
        place = path_of(subject.target if isinstance(subject, ast.NamedExpr) else subject)
        if place is not None:
            if yes is not None:
                yes.types[place] = self.meet(operand.type, classes)
            if no is not None:
                no.types[place] = self._without(operand.type, classes)
        return yes, no

    def _is_one_of(self, kind: Instance | None, classes: Sequence[Instance]) -> bool | None:
        if kind is None:
            return None
        answers = [self.members.is_subclass(kind, one.name) for one in classes]
        if True in answers:
            return True
        return None if None in answers else False

    def meet(self, kind: Type, classes: Sequence[Instance]) -> Type:
        """The alternatives of a type that are of some classes; these, where none is known to be."""
        kept = [
            one
            for one in members(kind)
            if isinstance(one, Instance) and self._is_one_of(one, classes)
        ]
        return union(*kept) if kept else union(*classes)

    def _without(self, kind: Type, classes: Sequence[Instance]) -> Type:
        left = [
            one
            for one in members(kind)
            if not (isinstance(one, Instance) and self._is_one_of(one, classes))
        ]
        return union(*left) if left else kind

    def again(self, node: ast.expr, state: State) -> Operand:
        """What a tested expression was, looked at once more without doing it once more."""
        target = node.target if isinstance(node, ast.NamedExpr) else node
        path = path_of(target)
        if path is not None and path in state.places:
            return Operand(node, state.types.get(path, ANY), state.places[path], path)
        known = self.tested.get(id(node))
        return Operand(node, ANY) if known is None or known.value not in state.facts else known

    def type_of(self, kinds: Sequence[Type]) -> Type:
        """The type of a choice, as far as it matters: what is followed goes first."""
        known = [kind for kind in kinds if kind != ANY]
        followed = [kind for kind in known if self.kinds.is_followed(kind)]
        return (followed or known or [ANY])[0]


def _place_in(key: Hashable) -> str:
    """The place that a joint value is numbered by: the last part of nested keys."""
    return _place_in(cast("tuple[Hashable, ...]", key)[-1]) if isinstance(key, tuple) else str(key)


def _is_none(fact: Fact) -> bool | None:
    if fact.type is None:
        return None if fact.status is Status.PLAIN else False
    return fact.type == NONE


def _is_false(fact: Fact) -> bool | None:
    """Whether a value of this fact is false; None when it may be either."""
    if fact.type == NONE:
        return True
    if fact.status is not Status.PLAIN and fact.type is not None:
        is_container = fact.type.name in {"list", "dict", "set", "tuple"} or fact.type.args
        return None if is_container else False
    return None
