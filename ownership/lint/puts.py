"""Putting a handle where no name is: into a container, or into a field that is no owner."""

import ast
from typing import Final

from ownership.lint.drops import Drops
from ownership.lint.members import Member
from ownership.lint.moves import NOBODYS
from ownership.lint.operands import Operand
from ownership.lint.state import Fact, State, Status, Value
from ownership.lint.types import ANY, Instance, Type, members, without_none

__all__ = ["Puts"]

_HELD: Final = (Status.LIVE, Status.BORROWED, Status.ELEMENT, Status.FIELD)


class Puts(Drops):
    """Containers and fields take a handle over, or only note its name."""

    def store_unowned(
        self, operand: Operand, state: State, target: ast.AST, member: Member | None
    ) -> None:
        """A handle goes where no owner is declared."""
        for value in self.leaves(state, operand):
            self._check_moved(state, operand, value)
            if self.note_name(state, value):
                continue
            if any(fact.status in _HELD for fact in state.facts[value]):
                name = self.name_of(operand, value)
                owner = (
                    member.owner.name if member is not None and member.owner is not None else None
                )
                says = f"`{owner}` does not declare" if owner else "no class declares"
                message = f"`{name}` is stored in `{ast.unparse(target)}`, which {says} as an owner"
                self.report("OWN008", message, operand.node, self.taken(value))
                self.release(state, Operand(operand.node, ANY, value))

    def note_name(self, state: State, value: Value) -> bool:
        """A name of what the device owns is noted somewhere: it need not end here any more."""
        named = [fact for fact in state.facts[value] if self._is_name(fact)]
        state.facts[value] = frozenset(
            fact._replace(status=Status.NAMED) if fact in named else fact
            for fact in state.facts[value]
        )
        return bool(named)

    def _is_name(self, fact: Fact) -> bool:
        if fact.type is None or fact.status not in {*_HELD, Status.NAMED, Status.FREE}:
            return False
        return self.kinds.begins_named(fact.type)

    def put(self, container: Operand, operand: Operand, state: State, node: ast.AST) -> None:
        """Put an operand into a container."""
        if not self.leaves(state, operand):
            return
        place = container.value
        if place is None:
            self.store_unowned(operand, state, container.node, self._field_behind(container, state))
            return
        if place in state.parts:
            self._collapse(state, place, node, Status.LIVE)
        statuses = {fact.status for fact in state.facts.get(place, ())}
        if statuses & {Status.FIELD, Status.BORROWED}:
            self.move(state, operand)
        elif isinstance(container.node, ast.Attribute):
            self._put_into_field(container, place, operand, state)
        else:
            self.put_locally(place, operand, state, node)

    def _put_into_field(
        self, container: Operand, place: Value, operand: Operand, state: State
    ) -> None:
        """An owner field that was empty takes a handle over; any other may not."""
        member = self._field_behind(container, state)
        if member is None or member.mark != "owns":
            self.store_unowned(operand, state, container.node, member)
            return
        self.move(state, operand)
        kinds = {fact.type for fact in state.facts[place]}
        state.facts[place] |= {Fact(Status.FIELD, kind) for kind in kinds}

    def _field_behind(self, container: Operand, state: State) -> Member | None:
        node = container.node
        if not isinstance(node, ast.Attribute):
            return None
        return self.field_of(self.eval(node.value, state).type, node.attr)

    def put_locally(self, place: Value, operand: Operand, state: State, node: ast.AST) -> None:
        """A container that is nobody else's takes a handle over, or notes a borrowed one."""
        leaves = self.leaves(state, operand)
        named = [self.note_name(state, value) for value in leaves]
        inside = {fact.status for value in leaves for fact in state.facts[value]}
        kind = Instance("list")
        if all(named):
            new = Fact(Status.NAMED, kind)
        elif inside & {Status.LIVE, Status.ELEMENT, Status.MOVED}:
            self.move(state, operand)
            new = Fact(Status.LIVE, kind)
            self.origins[place] = self.origins.get(place, node)
        elif inside & {Status.BORROWED, Status.FIELD}:
            new = Fact(Status.BORROWED, kind)
        else:
            new = Fact(Status.FREE, kind)
        kept = {fact for fact in state.facts[place] if fact.status is not Status.PLAIN}
        state.facts[place] = frozenset({*kept, new})

    def field_of(self, kind: Type, name: str) -> Member | None:
        """The first field of that name among the alternatives of a type."""
        for one in members(without_none(kind)):
            member = self.members.member(one, name) if isinstance(one, Instance) else None
            if member is not None:
                return member
        return None

    def _is_nobodys(self, state: State, value: Value) -> bool:
        return all(fact.status in NOBODYS for fact in state.facts[value])

    def _collapse(self, state: State, value: Value, where: ast.AST, status: Status) -> None:
        leaves = state.leaves(value)
        named = [self.note_name(state, leaf) for leaf in leaves]
        if all(named):
            state.parts.pop(value)
            status = Status.NAMED
            state.facts[value] = frozenset({Fact(Status.NAMED)})
        elif all(self._is_nobodys(state, leaf) for leaf in leaves):
            state.parts.pop(value)
            status = Status.FREE
            state.facts[value] = frozenset({Fact(Status.FREE)})
        else:
            state.collapse(value, Instance("list"), where)
        self.labels.setdefault(value, "list")
        self.origins.setdefault(value, where)
        state.facts[value] = frozenset({Fact(status, Instance("list"))})
