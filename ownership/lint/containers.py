"""Containers of handles: what goes in, what comes out, and what only looks."""

import ast
from collections.abc import Hashable, Sequence
from typing import Final

from ownership.lint.operands import Operand
from ownership.lint.state import Fact, State, Status, Value, moved
from ownership.lint.stores import Stores
from ownership.lint.types import ANY, NONE, Instance, Type, elements_of, is_mapping, members

__all__ = ["Containers", "Rounds"]

_PUTS: Final = frozenset(
    {"append", "appendleft", "add", "insert", "extend", "update", "setdefault"}
)
_TAKES: Final = frozenset({"pop", "popleft", "popitem"})
_LOOKS: Final = frozenset({"get", "values", "copy", "items", "keys", "__getitem__"})


Rounds = list[tuple[Value, Operand]]
"""The element of each round of a loop, and what it is an element of."""


class Containers(Stores):
    """Method calls, subscripts and iteration of containers."""

    def container_call(
        self, node: ast.Call, receiver: Operand, name: str, state: State
    ) -> Operand | None:
        """A method of a container that holds, or may come to hold, handles; else None."""
        if not self.is_container(receiver, state):
            return None
        if name in _PUTS:
            return self._put_call(node, receiver, state)
        if name in _TAKES:
            return self._take_call(node, receiver, name, state)
        if name in _LOOKS:
            return self._look_call(node, receiver, name, state)
        if name == "clear":
            self._clear(node, receiver, state)
            return Operand(node, NONE)
        return None

    def is_container(self, operand: Operand, state: State) -> bool:
        """Whether an operand is a list, a dict or the like that may hold handles."""
        if any(self.kinds.kind(member) == "container" for member in members(operand.type)):
            return True
        if operand.value is not None and operand.value in state.parts:
            return True
        facts = state.facts.get(operand.value or 0, frozenset[Fact]())
        if any(
            fact.type is not None and fact.type.name in {"list", "dict", "set"} for fact in facts
        ):
            return True
        names = {member.name for member in members(operand.type) if isinstance(member, Instance)}
        return bool(names & {"list", "dict", "set", "collections.deque"})

    def _put_call(self, node: ast.Call, receiver: Operand, state: State) -> Operand:
        for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
            operand = self.eval(argument, state)
            self.before_call(state)
            self.put(receiver, operand, state, node)
        return Operand(node, ANY)

    def _take_call(self, node: ast.Call, receiver: Operand, name: str, state: State) -> Operand:
        defaults = [self.eval(argument, state) for argument in node.args][1:]
        self.before_call(state)
        self.use(state, receiver)
        status = self._taken_status(node, receiver, state)
        if status is None:
            return Operand(node, ANY)
        value = self.element(node, receiver, status, state, "taken")
        for default in defaults:
            for fact in self.plain_facts(default):
                state.facts[value] |= {fact}
        self.temporaries.append(value)
        taken = Operand(node, elements_of(receiver.type), value)
        return Operand(node, ANY, parts=(Operand(node), taken)) if name == "popitem" else taken

    def plain_facts(self, operand: Operand) -> frozenset[Fact]:
        """The facts of a value that is not followed."""
        kinds = [member for member in members(operand.type) if isinstance(member, Instance)]
        return frozenset(Fact(Status.PLAIN, kind) for kind in kinds or [NONE])

    def _taken_status(self, node: ast.Call, receiver: Operand, state: State) -> Status | None:
        place = receiver.value
        if place is not None and place in state.parts:
            self._collapse(state, place, node, Status.LIVE)
        statuses = {fact.status for fact in state.facts.get(place or 0, ())}
        if Status.FIELD in statuses:
            return Status.LIVE
        if Status.LIVE in statuses and place is not None:
            self.release(state, receiver)
            return Status.LIVE
        if Status.BORROWED in statuses:
            self.move(state, Operand(receiver.node, ANY, place))
            return Status.FREE
        for status in (Status.NAMED, Status.FREE):
            if status in statuses:
                return status
        return Status.FREE if self.kinds.is_followed(elements_of(receiver.type)) else None

    def _look_call(self, node: ast.Call, receiver: Operand, name: str, state: State) -> Operand:
        for argument in node.args:
            self.use(state, self.eval(argument, state))
        if name == "keys":
            return Operand(node, ANY, is_keys=True)
        if name == "items":
            values = self._values(node, receiver)
            return Operand(node, ANY, parts=(Operand(node, is_keys=True), values), is_keys=True)
        if name == "values":
            return self._values(node, receiver)
        if name == "copy":
            return Operand(node, receiver.type, receiver.value, parts=receiver.parts)
        looked = self.look(node, receiver, state)
        if looked.value is not None:
            state.facts[looked.value] |= {Fact(Status.PLAIN, NONE)}
        return looked

    def _values(self, node: ast.AST, receiver: Operand) -> Operand:
        kind = Instance("list", (elements_of(receiver.type),))
        return Operand(node, kind, receiver.value, parts=receiver.parts)

    def _clear(self, node: ast.Call, receiver: Operand, state: State) -> None:
        for value in state.leaves(receiver.value):
            if any(fact.status in {Status.FIELD, Status.LIVE} for fact in state.facts[value]):
                message = f"`{ast.unparse(node)}` drops the handles in it"
                self.drop(state, value, message, node, None)
            state.facts[value] = frozenset({Fact(Status.PLAIN, Instance("list"))})

    # Elements

    def element(
        self, node: ast.AST, container: Operand, status: Status, state: State, tag: Hashable
    ) -> Value:
        """A value for an element of a container."""
        kind = elements_of(container.type)
        value = self.fresh(state, node, kind, status, tag)
        if not self.kinds.is_followed(kind):
            state.facts[value] = frozenset({Fact(status)})
        return value

    def look(self, node: ast.AST, container: Operand, state: State) -> Operand:
        """An element that stays in its container: borrowed."""
        if container.parts is not None or container.value in state.parts:
            return self._known_element(node, container, state)
        self.use(state, container)
        status = self.element_status(state, container)
        if status is None:
            return Operand(node, elements_of(container.type))
        if status is Status.ELEMENT:
            # Which element it is, is not followed; what becomes of the rest isn't either.
            status = Status.FREE
            self._loosen(container, state)
        value = self.element(node, container, status, state, "element")
        return Operand(node, elements_of(container.type), value)

    def _loosen(self, container: Operand, state: State) -> None:
        for value in self.leaves(state, container):
            state.facts[value] = frozenset(
                fact._replace(status=Status.FREE) if fact.status is Status.LIVE else fact
                for fact in state.facts[value]
            )

    def _known_element(self, node: ast.AST, container: Operand, state: State) -> Operand:
        index = node.slice if isinstance(node, ast.Subscript) else None
        known = state.parts.get(container.value or 0, ())
        parts = container.parts or tuple(Operand(node, ANY, part) for part in known)
        if isinstance(index, ast.Slice) and _is_constant(index):
            low, high = _constant_index(index.lower), _constant_index(index.upper)
            return Operand(node, container.type, parts=parts[low:high])
        number = _constant_index(index)
        if number is not None and -len(parts) <= number < len(parts):
            part = parts[number]
            return Operand(node, part.type, part.value, parts=part.parts)
        self._loosen(container, state)
        return Operand(node, ANY, parts=parts)

    def use_whole(self, state: State, operand: Operand) -> None:
        """A loop begins over a container; elements that are known are used one by one."""
        if operand.parts is None and operand.value not in state.parts:
            self.use(state, operand)

    def iterate(
        self, target: ast.AST, operand: Operand, state: State, rounds: Rounds, tag: Hashable = ""
    ) -> Operand:
        """What one round of a loop over an operand gives; notes which element is whose."""
        if (operand.is_keys or is_mapping_type(operand.type)) and operand.parts is None:
            return Operand(target, ANY)
        if operand.parts is not None and operand.is_keys:
            given = tuple(
                self.iterate(target, part, state, rounds, (tag, number))
                for number, part in enumerate(operand.parts)
            )
            return Operand(target, ANY, parts=given)
        leaves = self.leaves(state, operand)
        kind = elements_of(operand.type)
        if not leaves:
            return Operand(target, kind)
        if operand.parts is not None or operand.value in state.parts:
            return self._iterate_known(target, operand, state, rounds, tag)
        status = self.element_status(state, operand)
        if status is None:
            return Operand(target, kind)
        value = self.element(target, operand, status, state, ("round", tag))
        if status is Status.ELEMENT:
            rounds.append((value, operand))
        else:
            at = next((fact.where for fact in state.facts[leaves[0]] if fact.where), None)
            state.facts[value] = frozenset(fact._replace(where=at) for fact in state.facts[value])
        return Operand(target, kind, value)

    def _iterate_known(
        self, target: ast.AST, operand: Operand, state: State, rounds: Rounds, tag: Hashable
    ) -> Operand:
        """One round over elements that are known one by one: any of them."""
        leaves = self.leaves(state, operand)
        value = self.number((id(target), "any", tag))
        facts = {fact for leaf in leaves for fact in state.facts[leaf]}
        state.facts[value] = frozenset(
            fact._replace(status=Status.ELEMENT) if fact.status is Status.LIVE else fact
            for fact in facts
        )
        self.origins[value], self.labels[value] = target, ast.unparse(target)
        rounds.append((value, operand))
        return Operand(target, ANY, value)

    def end_rounds(self, rounds: Rounds, ends: Sequence[State], state: State) -> None:
        """After a loop: where each round moved its element, the container is spent.

        Args:
            ends: the states at the ends of rounds.
            state: the state after the loop; changed.
        """
        for element, iterable in rounds:
            facts = frozenset(fact for end in ends for fact in end.facts.get(element, ()))
            where = next((fact.where for fact in facts if fact.status is Status.MOVED), None)
            is_empty = any(fact.status is Status.FREE for fact in facts)
            if where is None and element in self.emptied and is_empty:
                where = self.origins[element]
            if where is None:
                continue
            is_whole = not any(fact.status is Status.ELEMENT for fact in facts)
            for leaf in self.leaves(state, iterable):
                gone = moved(state.facts[leaf], where)
                state.facts[leaf] = gone if is_whole else gone | state.facts[leaf]

    def before_call(self, state: State) -> None:
        """Note the state for the handlers around: a call that raises has changed nothing."""
        for states in self.raising:
            states.append(state.copy())


def is_mapping_type(kind: Type) -> bool:
    """Whether iterating a value of this type gives keys."""
    return any(isinstance(one, Instance) and is_mapping(one) for one in members(kind))


def _is_constant(node: ast.Slice) -> bool:
    bounds = [one for one in (node.lower, node.upper) if one is not None]
    return node.step is None and all(_constant_index(one) is not None for one in bounds)


def _constant_index(node: ast.expr | None) -> int | None:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(number))):
            return -number
        case _:
            return None
