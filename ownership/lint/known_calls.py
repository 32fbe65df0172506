"""Calls whose meaning is known by name: builtins, copies, casts, and what defers a call."""

import ast
from collections.abc import Sequence
from typing import Final

import attrs

from ownership.lint.containers import Containers, is_mapping_type
from ownership.lint.operands import Operand
from ownership.lint.state import State, Status
from ownership.lint.types import ANY, Class, Function, Instance, Type, members

__all__ = ["Argument", "KnownCalls", "qualified_name"]

_SAME: Final = frozenset(
    {"list", "tuple", "sorted", "reversed", "iter", "set", "frozenset", "collections.deque"}
)
_COPIES: Final = frozenset(
    {
        "copy.copy",
        "copy.deepcopy",
        "copy.replace",
        "pickle.dumps",
        "attrs.evolve",
        "attr.evolve",
        "dataclasses.replace",
        "attrs.asdict",
        "dataclasses.asdict",
        "attrs.astuple",
    }
)
_ASKS: Final = frozenset({"isinstance", "id", "type", "hash", "callable"})


@attrs.frozen
class Argument:
    """One argument of a call."""

    operand: Operand
    keyword: str | None = None
    is_star: bool = False


class KnownCalls(Containers):
    """Names are looked up first: one's own function named ``copy`` is none of these."""

    def _builtin(
        self, node: ast.Call, name: str, arguments: Sequence[Argument], state: State
    ) -> Operand | None:
        first = arguments[0].operand if arguments else Operand(node)
        if name in _ASKS:
            return Operand(node, ANY)
        if name == "super" and self.function.owner is not None:
            return self._super(node)
        if name in _SAME and arguments and is_mapping_type(first.type) and not first.is_keys:
            return Operand(node, ANY, is_keys=True)
        if name in _SAME and arguments:
            return Operand(node, first.type, first.value, parts=first.parts, is_keys=first.is_keys)
        if name == "zip":
            return Operand(
                node,
                ANY,
                parts=tuple(one.operand for one in arguments if one.keyword is None),
                is_keys=True,
            )
        if name == "enumerate":
            return Operand(node, ANY, parts=(Operand(node, is_keys=True), first), is_keys=True)
        if name == "next" and self.leaves(state, first):
            return self.look(node, first, state)
        if name == "typing.cast" and len(node.args) == 2:
            return self._cast(node, arguments[1].operand)
        if name in _COPIES:
            for argument in arguments:
                self._copied(argument.operand, name, state)
            return Operand(node, first.type)
        if name in {"list", "dict", "set", "collections.deque"} and not arguments:
            return self.empty_container(node, name, state)
        return None

    def _super(self, node: ast.Call) -> Operand:
        """The own object, seen as an instance of its first base."""
        info = self.function.owner
        bases = [] if info is None else info.node.bases
        kinds = [self.members.annotations.read(base, self.module)[0] for base in bases]
        return Operand(node, next((kind for kind in kinds if isinstance(kind, Instance)), ANY))

    def empty_container(self, node: ast.AST, name: str, state: State) -> Operand:
        """A fresh container with nothing in it."""
        value = self.fresh(state, node, Instance(name), Status.PLAIN)
        return Operand(node, Instance(name), value)

    def _cast(self, node: ast.Call, operand: Operand) -> Operand:
        kind = self.members.annotations.read(node.args[0], self.module, self.function.owner)[0]
        name = self.kinds.handle_name(kind)
        if name is not None and not self._issues(kind):
            self.report("OWN007", f"a cast forges a `{name}`", node)
        return Operand(node, kind, operand.value, parts=operand.parts)

    def _issues(self, kind: Type) -> bool:
        return all(
            self.kinds.is_issuer(self.module.name, member)
            for member in members(kind)
            if isinstance(member, Instance) and self.kinds.kind(member) in {"handle", "named"}
        )

    def _copied(self, operand: Operand, how: str, state: State) -> None:
        self.use(state, operand)
        for value in self.leaves(state, operand):
            kinds = [fact.type for fact in state.facts[value] if fact.status is not Status.PLAIN]
            if any(kind is None or self.kinds.kind(kind) != "ending" for kind in kinds):
                name = self.name_of(operand, value)
                self.report("OWN007", f"`{name}` is copied by `{how}`", operand.node)

    def _forge(self, node: ast.Call, callee: Type, arguments: Sequence[Argument]) -> bool:
        """Report the building of a handle by anybody but its issuer."""
        made = callee if isinstance(callee, Class) else self._issued_by(callee)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "__new__":
            given = [one.operand.type for one in arguments]
            made = next((kind for kind in given if isinstance(kind, Class)), None)
        if made is None:
            return False
        short = self.kinds.handle_name(made.instance)
        if short is not None and not self.kinds.is_issuer(self.module.name, made.instance):
            home = self.kinds.home(made.instance)
            self.report("OWN007", f"a `{short}` is built outside `{home}`", node)
            return True
        return False

    def _issued_by(self, callee: Type) -> Class | None:
        """The handle class that a function builds and returns at once."""
        if not isinstance(callee, Function):
            return None
        for node in callee.info.node.body:
            if isinstance(node, ast.Return) and isinstance(node.value, ast.Call):
                found = self.members.names.expression(callee.info.module, node.value.func)
                kind = self.members.defined(found)
                if isinstance(kind, Class) and self.kinds.handle_name(kind.instance):
                    return kind
        return None

    def _check_deferred(self, name: str, arguments: Sequence[Argument], state: State) -> None:
        """A callable and a handle given together: the call may never be made."""
        is_partial = name == "functools.partial"
        later: Function | None = None
        for argument in arguments:
            operand = argument.operand
            if isinstance(operand.type, Function) and later is None:
                later = operand.type
            elif later is not None and self.leaves(state, operand):
                consumes = any(parameter.mark for parameter in self.members.parameters(later))
                if is_partial or consumes:
                    what = "`partial`" if is_partial else "a task"
                    self.capture(state, operand, what)

    def is_deferring(self, name: str) -> bool:
        """Whether a call keeps its arguments for later."""
        return name in {"functools.partial", "asyncio.create_task"}

    def check_receiver(self, receiver: Operand, method: str, state: State) -> None:
        """Report a call on what has ended."""
        for kind in members(receiver.type):
            is_followed = self.kinds.kind(kind) in {"ending", "handle"}
            if isinstance(kind, Instance) and is_followed:
                self._check_usable(kind, receiver, method, state)

    def _check_usable(self, kind: Instance, receiver: Operand, method: str, state: State) -> None:
        if not self.kinds.usable_after(kind, method):
            self.use(state, receiver)

    def end_receiver(self, receiver: Operand, method: str, state: State) -> None:
        """End the receiver of a configured method."""
        for kind in members(receiver.type):
            if isinstance(kind, Instance) and self.kinds.ends_receiver(kind, method):
                self.sink.count(receiver.node)
                self.move(state, receiver, ends=True)
                return  # Once, whatever else the receiver may be.

    def never_returns(self, callee: Type) -> bool:
        """Whether what follows a call is not reached."""
        if not isinstance(callee, Function):
            return qualified_name(callee) in {
                "typing.assert_never",
                "sys.exit",
                "pytest.fail",
                "pytest.skip",
                "exit",
                "os._exit",
            }
        returns = callee.info.node.returns
        return returns is not None and ast.unparse(returns).rpartition(".")[2] in {
            "NoReturn",
            "Never",
        }


def qualified_name(callee: Type) -> str:
    """The dotted name of what is called; empty when it is not known."""
    if isinstance(callee, Function):
        return callee.info.qualified
    return callee.instance.name if isinstance(callee, Class) else ""
