"""How a function begins, and what calls of its own object's methods leave behind."""

import ast
from abc import abstractmethod
from collections.abc import Mapping, Sequence

from ownership.lint.blocks import Blocks
from ownership.lint.index import FunctionInfo
from ownership.lint.operands import Operand
from ownership.lint.state import Fact, State, Status
from ownership.lint.types import Class, Function, Instance, Type

__all__ = ["Methods", "Summary"]

Summary = Mapping[str, frozenset[Fact]] | None
"""What a method leaves in owner fields of its object; None: nobody knows."""


class Methods(Blocks):
    """Parameters at the start, and owner fields across calls."""

    @abstractmethod
    def summary_of(self, function: FunctionInfo) -> Summary:
        """What a method of the own object leaves in its owner fields."""
        ...

    def entry(self) -> State:
        state = State()
        for parameter in self.function.parameters:
            read = self.members.annotations.read
            kind, mark = read(parameter.annotation, self.module, self.function.owner)
            state.types[parameter.arg] = kind
            if self.kinds.is_followed(kind):
                status = {"consume": Status.LIVE, "owns": Status.FIELD, "": Status.BORROWED}[mark]
                if mark == "consume" and self.kinds.is_spent_within(self.module.name, kind):
                    status = Status.FREE
                value = self.fresh(state, parameter, kind, status)
                if status is Status.BORROWED:
                    state.facts[value] = frozenset(
                        fact._replace(where=parameter) if fact.status is Status.BORROWED else fact
                        for fact in state.facts[value]
                    )
                self.bound.add(value)
                state.places[parameter.arg] = value
        variadic = self.function.node.args.vararg
        if variadic is not None:
            self._enter_variadic(variadic, state)
        if self.receiver is not None:
            state.types[self.receiver] = self.own_type()
        elif self.function.owner is not None and "classmethod" in self.function.decorators:
            state.types[self.function.parameters[0].arg] = Class(self.own_type())
        return state

    def _enter_variadic(self, variadic: ast.arg, state: State) -> None:
        kind, mark = self.members.annotations.read(
            variadic.annotation, self.module, self.function.owner
        )
        state.types[variadic.arg] = whole = Instance("tuple", (kind,))
        if self.kinds.is_followed(whole):
            status = Status.LIVE if mark == "consume" else Status.BORROWED
            value = self.fresh(state, variadic, whole, status)
            state.facts[value] = frozenset(
                fact._replace(where=variadic) for fact in state.facts[value]
            )
            self.bound.add(value)
            state.places[variadic.arg] = value

    def summary(self, states: Sequence[State]) -> Summary:
        if not states:
            return {}
        found: dict[str, frozenset[Fact]] = {}
        places = {place for state in states for place in state.places if self.is_own_field(place)}
        for place in places:
            name = place.partition(".")[2]
            facts: set[Fact] = set()
            for state in states:
                value = state.places.get(place)
                if value is None:
                    return None
                for leaf in state.leaves(value):
                    facts |= state.facts[leaf]
            # The values of one function are numbered by it: what they stem from says nothing here.
            found[name] = frozenset(fact._replace(where=None, root=None) for fact in facts)
        return found

    def begin_object(self, name: str, operand: Operand, state: State) -> None:
        kind = operand.type
        init = self.members.member(kind, "__init__") if isinstance(kind, Instance) else None
        if init is None or not isinstance(init.type, Function):
            return
        for field, facts in (self.summary_of(init.type.info) or {}).items():
            if all(fact.status is Status.PLAIN for fact in facts):
                path = f"{name}.{field}"
                value = self.number(("begins", id(operand.node), path))
                state.facts[value] = facts
                self.labels[value], self.origins[value] = path, operand.node
                self.bound.add(value)
                state.places[path] = value

    def after_method(self, receiver: Operand, callee: Type, state: State) -> None:
        if receiver.place is None or not isinstance(callee, Function):
            return
        if receiver.place != self.receiver:
            if receiver.value is None:
                self.lose_fields(receiver.place, state)
            return
        summary = self.summary_of(callee.info)
        if summary is None:
            self.lose_fields(receiver.place, state)
            return
        for name, facts in summary.items():
            path = f"{receiver.place}.{name}"
            for leaf in state.leaves(state.places.pop(path, None)):
                self._leave_by_method(leaf, state)
            value = self.number(("after", id(callee.info), name))
            state.facts[value] = facts
            self.labels[value], self.origins[value] = path, self.function.node
            self.bound.add(value)
            state.places[path] = value

    def _leave_by_method(self, leaf: int, state: State) -> None:
        state.facts[leaf] = frozenset(
            fact._replace(status=Status.BORROWED, where=None)
            if fact.status is Status.FIELD
            else fact
            for fact in state.facts[leaf]
        )
