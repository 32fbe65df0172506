"""Where a handle is put: names, owner fields and other fields, local containers."""

import ast
from abc import abstractmethod
from collections.abc import Sequence
from typing import cast

from ownership.lint.hierarchy import receiver_of
from ownership.lint.operands import Operand
from ownership.lint.puts import Puts
from ownership.lint.state import Fact, State, Status, Value
from ownership.lint.types import ANY, NONE, Instance, elements_of

__all__ = ["Stores", "path_of"]

_LONGEST_PATH = 3


def path_of(node: ast.AST) -> str | None:
    """``a.b.c`` as a place, when it is no longer than that."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or len(parts) >= _LONGEST_PATH:
        return None
    return ".".join([node.id, *reversed(parts)])


class Stores(Puts):
    """Assignments."""

    _lost: list[tuple[Value, str, ast.AST]]
    """What the assignment at hand has taken names from."""

    @property
    def receiver(self) -> str | None:
        """What the method calls its own object."""
        return receiver_of(self.function)

    def is_own_field(self, place: str) -> bool:
        owner, _, field = place.partition(".")
        if not field or owner != self.receiver or "." in field or self.function.owner is None:
            return False
        member = self.members.member(self.own_type(), field)
        return member is not None and member.mark == "owns"

    def own_type(self) -> Instance:
        """The class that the function is a method of."""
        info = self.function.owner
        return Instance("object") if info is None else Instance(info.qualified, (), info)

    def bind(self, target: ast.expr, operand: Operand, state: State) -> None:
        """Assign an operand to a target; only then look at what lost its name by that."""
        outer, self._lost = self._lost, []
        self._assign(target, operand, state)
        lost, self._lost = self._lost, outer
        for leaf, path, node in lost:
            if "." in path:
                self._leave_field(leaf, path, node, state)
            else:
                self._overwritten(leaf, path, node, state)

    def _assign(self, target: ast.expr, operand: Operand, state: State) -> None:
        match target:
            case ast.Name():
                self.bind_name(target, target.id, operand, state)
            case ast.Attribute():
                self._bind_field(target, operand, state)
            case ast.Subscript():
                self.eval(target.slice, state)
                container = self.eval(target.value, state)
                self.put(container, operand, state, target)
            case ast.Tuple() | ast.List():
                self._unpack(target.elts, operand, state)
            case _:
                self._assign(cast("ast.Starred", target).value, operand, state)

    # Names

    def bind_name(self, node: ast.AST, name: str, operand: Operand, state: State) -> None:
        """Let a name stand for an operand; what it named before may be lost."""
        old = state.leaves(state.places.pop(name, None))
        state.forget(f"{name}.")
        value = self._whole(node, operand, state)
        if value is not None:
            state.places[name] = value
            for leaf in state.leaves(value):
                self._call_it(leaf, name, node, state)
        state.types[name] = operand.type
        if operand.is_new:
            self.begin_object(name, operand, state)
        self._lost += [(leaf, name, node) for leaf in old]

    @abstractmethod
    def begin_object(self, name: str, operand: Operand, state: State) -> None:
        """Note what the owner fields of a fresh object hold."""
        ...

    def rename(self, node: ast.AST, name: str, operand: Operand, state: State) -> None:
        """Let a name stand for an operand, outside of an assignment."""
        outer, self._lost = self._lost, []
        self.bind_name(node, name, operand, state)
        lost, self._lost = self._lost, outer
        for leaf, path, at in lost:
            self._overwritten(leaf, path, at, state)

    def _call_it(self, leaf: Value, name: str, node: ast.AST, state: State) -> None:
        if leaf not in self.bound:
            self.bound.add(leaf)
            if not any(fact.status is Status.BORROWED for fact in state.facts[leaf]):
                self.labels[leaf], self.origins[leaf] = name, node

    def _whole(self, node: ast.AST, operand: Operand, state: State) -> Value | None:
        if operand.parts is None:
            return operand.value
        if not self.leaves(state, operand):
            return None
        value = self.number((id(node), "parts"))
        state.parts[value] = tuple(self._whole(part.node, part, state) for part in operand.parts)
        return value

    def _overwritten(self, leaf: Value, name: str, node: ast.AST, state: State) -> None:
        if leaf in state.facts and self.is_ours(state, leaf) and not state.holders(leaf):
            message = f"`{name}` is overwritten while it is live"
            self.drop(state, leaf, message, node, self.taken(leaf))

    def _unpack(self, targets: Sequence[ast.expr], operand: Operand, state: State) -> None:
        parts = operand.parts
        if parts is None and operand.value in state.parts:
            known = state.parts[operand.value]
            parts = tuple(Operand(operand.node, ANY, part) for part in known)
        if parts is not None and len(parts) == len(targets):
            for target, part in zip(targets, parts, strict=True):
                self._assign(target, part, state)
            return
        status = self.element_status(state, operand)
        kind = elements_of(operand.type)
        if status is Status.ELEMENT and operand.value is not None:
            status = Status.LIVE
            self._move_one(state, operand.value, operand.node)
        for number, target in enumerate(targets):
            if status is None or not self.kinds.is_followed(kind):
                self._assign(target, Operand(target, kind), state)
                continue
            of = Instance("list", (kind,)) if isinstance(target, ast.Starred) else kind
            value = self.fresh(state, target, of, status, ("unpacked", number))
            self._assign(target, Operand(target, of, value), state)

    def element_status(self, state: State, operand: Operand) -> Status | None:
        """In which condition the elements of a container are."""
        order = (
            Status.LIVE,
            Status.MOVED,
            Status.BORROWED,
            Status.FIELD,
            Status.NAMED,
            Status.FREE,
        )
        found = {
            fact.status for value in self.leaves(state, operand) for fact in state.facts[value]
        }
        for status in order:
            if status in found:
                by = {
                    Status.LIVE: Status.ELEMENT,
                    Status.FIELD: Status.BORROWED,
                    Status.MOVED: Status.FREE,
                }
                return by.get(status, status)
        return None

    # Fields

    def _bind_field(self, target: ast.Attribute, operand: Operand, state: State) -> None:
        base = self.eval(target.value, state)
        member = self.field_of(base.type, target.attr)
        path = path_of(target)
        if member is not None and member.mark == "owns":
            self._bind_owner(target, path, operand, state)
        elif self.leaves(state, operand):
            self.store_unowned(operand, state, target, member)
            if path is not None:
                self._name_field(path, operand, state)
        elif path is not None:
            state.places.pop(path, None)
            state.types[path] = (
                operand.type if member is None or member.type == ANY else member.type
            )

    def _name_field(self, path: str, operand: Operand, state: State) -> None:
        state.forget(f"{path}.")
        value = operand.value if operand.parts is None else None
        if value is None:
            state.places.pop(path, None)
        else:
            state.places[path] = value

    def _bind_owner(
        self, target: ast.Attribute, path: str | None, operand: Operand, state: State
    ) -> None:
        if path is None:
            self.move(state, operand)
            return
        old: list[Value] = []
        if path in state.places or not self._begins_empty(path):
            old = state.leaves(self.eval(target, state).value)
        value = self._whole(target, operand, state)
        for leaf in state.leaves(value):
            self._own(operand, leaf, state, target)
        if value is None:
            value = self.number((id(target), "plain"))
            state.facts[value] = frozenset({Fact(Status.PLAIN, NONE)})
            self.labels[value], self.origins[value] = path, target
        if value in state.parts:
            self._collapse(state, value, target, Status.FIELD)
        state.forget(f"{path}.")
        state.places[path] = value
        self._lost += [(leaf, path, target) for leaf in old]

    def _begins_empty(self, path: str) -> bool:
        return self.function.name in {"__init__", "__attrs_post_init__"} and path.startswith(
            f"{self.receiver}."
        )

    def _own(self, operand: Operand, leaf: Value, state: State, target: ast.AST) -> None:
        """An owner field takes a value over."""
        if self._check_moved(state, operand, leaf):
            return
        self._check_owned(state, operand, leaf)
        held = {Status.LIVE, Status.BORROWED, Status.ELEMENT, Status.FREE}
        state.facts[leaf] = frozenset(
            Fact(Status.FIELD, fact.type, target) if fact.status in held else fact
            for fact in state.facts[leaf]
        )
        self.spend_carrier(state, leaf, target)

    def _leave_field(self, leaf: Value, path: str, node: ast.AST, state: State) -> None:
        """A field gives its value up, to another name or to nobody."""
        holders = [place for place in state.holders(leaf) if not self.is_own_field(place)]
        if any(self.is_own_field(place) for place in state.holders(leaf)):
            return
        if holders:
            state.facts[leaf] = frozenset(
                fact._replace(status=Status.LIVE, where=None)
                if fact.status is Status.FIELD
                else fact
                for fact in state.facts[leaf]
            )
            return
        if any(fact.status is Status.FIELD for fact in state.facts[leaf]):
            message = f"`{path}` is overwritten while it is live"
            self.drop(state, leaf, message, node, None)

    # Containers
