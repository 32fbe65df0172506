"""Calls: each argument is borrowed or moved as the parameter says, and the result is owned."""

import ast
from abc import abstractmethod
from collections.abc import Sequence
from typing import Final

import attrs

from ownership.lint.containers import Containers, is_mapping_type
from ownership.lint.index import FunctionInfo
from ownership.lint.members import Parameter
from ownership.lint.moves import Operand, type_name
from ownership.lint.state import State, Status, Value
from ownership.lint.types import ANY, Class, Function, Instance, Type, members

__all__ = ["Argument", "Calls"]

_SAME: Final = frozenset(
    {"list", "tuple", "sorted", "reversed", "iter", "set", "frozenset", "collections.deque"}
)
_COPIES: Final = frozenset(
    {
        "copy.copy", "copy.deepcopy", "copy.replace", "pickle.dumps", "attrs.evolve", "attr.evolve",
        "dataclasses.replace", "attrs.asdict", "dataclasses.asdict", "attrs.astuple",
    }
)
_ASKS: Final = frozenset({"isinstance", "id", "type", "hash", "callable"})


@attrs.frozen
class Argument:
    """One argument of a call."""

    operand: Operand
    keyword: str | None = None
    is_star: bool = False


class Calls(Containers):
    """What a call does to the handles that it is given."""

    def call(self, node: ast.Call, state: State, *, is_awaited: bool = False) -> Operand:
        """Evaluate a call."""
        receiver: Operand | None = None
        if isinstance(node.func, ast.Attribute):
            receiver = self.eval(node.func.value, state)
            special = self.container_call(node, receiver, node.func.attr, state)
            if special is not None:
                return special
            callee = self.members.attribute(receiver.type, node.func.attr)
            self._check_receiver(receiver, node.func.attr, state)
        else:
            callee = self.eval(node.func, state).type
        name = qualified_name(callee)
        arguments = self._arguments(node, state, defers=self._is_generator_free(name))
        self.before_call(state)
        builtin = self._builtin(node, name, arguments, state)
        if builtin is not None:
            return builtin
        self._check_deferred(node, name, arguments, state)
        is_forged = self._forge(node, callee, arguments)
        result = self._apply(node, callee, arguments, state, is_awaited=is_awaited)
        if is_forged:
            self.release(state, result)
        if receiver is not None and isinstance(node.func, ast.Attribute):
            self._end_receiver(receiver, node.func.attr, state)
            self.after_method(receiver, callee, state)
        self._forget_given(arguments, state)
        if self._never_returns(callee):
            self.is_dead = True
        return result

    @abstractmethod
    def after_method(self, receiver: Operand, callee: Type, state: State) -> None:
        """What a method may have done to the fields of its object."""
        ...

    # Arguments

    def _arguments(self, node: ast.Call, state: State, *, defers: bool) -> list[Argument]:
        found: list[Argument] = []
        for argument in node.args:
            is_star = isinstance(argument, ast.Starred)
            value = argument.value if isinstance(argument, ast.Starred) else argument
            found.append(Argument(self.argument(value, state, defers=defers), None, is_star))
        for keyword in node.keywords:
            found.append(
                Argument(self.argument(keyword.value, state, defers=defers), keyword.arg, keyword.arg is None)
            )
        return found

    @abstractmethod
    def argument(self, node: ast.expr, state: State, *, defers: bool) -> Operand:
        """Evaluate an argument; a generator expression is run by the call that gets it."""
        ...

    def _is_generator_free(self, name: str) -> bool:
        return name in {"functools.partial", "asyncio.create_task"}

    # Builtins and copies

    def _builtin(
        self, node: ast.Call, name: str, arguments: Sequence[Argument], state: State
    ) -> Operand | None:
        first = arguments[0].operand if arguments else Operand(node)
        if name in _ASKS:
            return Operand(node, ANY)
        if name in _SAME and arguments and is_mapping_type(first.type) and not first.is_keys:
            return Operand(node, ANY, is_keys=True)
        if name in _SAME and arguments:
            return Operand(node, first.type, first.value, parts=first.parts, is_keys=first.is_keys)
        if name == "zip":
            return Operand(node, ANY, parts=tuple(one.operand for one in arguments if one.keyword is None), is_keys=True)
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

    # Deferred calls

    def _check_deferred(
        self, node: ast.Call, name: str, arguments: Sequence[Argument], state: State
    ) -> None:
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
                    self.capture(state, operand, what, node)

    # Applying

    def _apply(
        self,
        node: ast.Call,
        callee: Type,
        arguments: Sequence[Argument],
        state: State,
        *,
        is_awaited: bool,
    ) -> Operand:
        target = next((one for one in members(callee) if isinstance(one, Function | Class)), ANY)
        kind = self.members.result(callee, [one.operand.type for one in arguments])
        if isinstance(target, Function):
            if isinstance(target.info.node, ast.AsyncFunctionDef) and not is_awaited:
                return self._coroutine(node, arguments, state)
            if any(name.endswith("contextmanager") for name in target.info.decorators):
                kind = ANY
        result = self._result(node, target, kind, arguments, state)
        self._give(node, target, arguments, state, result)
        return result

    def _coroutine(self, node: ast.Call, arguments: Sequence[Argument], state: State) -> Operand:
        for argument in arguments:
            if self.has(state, argument.operand, Status.LIVE, Status.ELEMENT):
                self.capture(state, argument.operand, "a coroutine", node)
        return Operand(node, ANY)

    def _result(
        self,
        node: ast.Call,
        target: Type,
        kind: Type,
        arguments: Sequence[Argument],
        state: State,
    ) -> Operand:
        if isinstance(target, Function):
            same = self._same_as(target.info, arguments)
            if same is not None:
                return Operand(node, same.type, same.value, parts=same.parts)
        if isinstance(kind, Instance) and kind.name == "tuple" and len(kind.args) > 1:
            if self.kinds.is_followed(kind):
                parts = tuple(self._made(node, one, state, number) for number, one in enumerate(kind.args))
                return Operand(node, kind, parts=parts)
        return self._made(node, kind, state, "")

    def _made(self, node: ast.Call, kind: Type, state: State, tag: object) -> Operand:
        if not self.kinds.is_followed(kind):
            return Operand(node, kind)
        value = self.fresh(state, node, kind, Status.LIVE, ("made", str(tag)))
        self.temporaries.append(value)
        return Operand(node, kind, value)

    def _same_as(self, info: FunctionInfo, arguments: Sequence[Argument]) -> Operand | None:
        """The argument that a function gives back as it is."""
        name = self.passed_through(info)
        if name is None:
            return None
        callee = Function(info, Instance("") if info.owner is not None else None)
        for parameter, argument in self._match(self.members.parameters(callee), arguments):
            if parameter.name == name:
                return argument.operand
        return None

    def passed_through(self, info: FunctionInfo) -> str | None:
        """The parameter that every ``return`` of a function names."""
        names: set[str | None] = set()
        for node in ast.walk(info.node):
            if isinstance(node, ast.Return):
                names.add(node.value.id if isinstance(node.value, ast.Name) else None)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in names:
                return None
        (name,) = names if len(names) == 1 else (None,)
        parameter = next((one for one in info.parameters if one.arg == name), None)
        if parameter is None:
            return None
        kind, mark = self.members.annotations.read(parameter.annotation, info.module, info.owner)
        return name if self.kinds.is_followed(kind) and not mark else None

    def _match(
        self, parameters: Sequence[Parameter], arguments: Sequence[Argument]
    ) -> list[tuple[Parameter, Argument]]:
        """Which argument goes where; a starred one to each parameter that is left."""
        pairs: list[tuple[Parameter, Argument]] = []
        by_name = {parameter.name: parameter for parameter in parameters}
        position = 0
        for argument in arguments:
            if argument.keyword is not None:
                if argument.keyword in by_name:
                    pairs.append((by_name[argument.keyword], argument))
                continue
            if position < len(parameters):
                parameter = parameters[position]
                pairs.append((parameter, argument))
                if not parameter.is_variadic:
                    position += 1
        return pairs

    def _give(
        self,
        node: ast.Call,
        target: Type,
        arguments: Sequence[Argument],
        state: State,
        result: Operand,
    ) -> None:
        pairs: list[tuple[Parameter, Argument]] = []
        if isinstance(target, Function):
            pairs = self._match(self.members.parameters(target), arguments)
        elif isinstance(target, Class):
            pairs = self._match(self.members.init_parameters(target.instance) or (), arguments)
        ended = self.kinds.ended_parameter(qualified_name(target))
        marks = {id(argument): parameter for parameter, argument in pairs}
        for number, argument in enumerate(arguments):
            parameter = marks.get(id(argument))
            is_ended = ended is not None and (
                number == 0 if not ended else (argument.keyword or (parameter and parameter.name)) == ended
            )
            if is_ended or (parameter is not None and parameter.mark):
                self._consume(node, target, argument.operand, state, result)
            elif parameter is not None and parameter.field is not None:
                self._store_by_init(node, target, parameter, argument.operand, state)
            else:
                self.use(state, argument.operand)

    def _consume(
        self, node: ast.Call, target: Type, operand: Operand, state: State, result: Operand
    ) -> None:
        lands = [value for value in self.leaves(state, operand) if value in state.lent]
        lease = result.value if self._is_named(result, state) else None
        self.move(state, operand, node, lease=lease)
        for value in lands:
            self._land(value, result, state)

    def _is_named(self, result: Operand, state: State) -> bool:
        return result.value is not None and any(
            fact.type is not None and self.kinds.kind(fact.type) == "named"
            for fact in state.facts[result.value]
        )

    def _land(self, lease: Value, result: Operand, state: State) -> None:
        """What went into the lease comes back: as the result, or by its old names."""
        self.landed[result.value or 0] = state.lent.pop(lease)

    def _store_by_init(
        self, node: ast.Call, target: Type, parameter: Parameter, operand: Operand, state: State
    ) -> None:
        """A generated ``__init__`` stores its arguments in fields that no mark makes owners."""
        if not self.has(state, operand, Status.LIVE, Status.ELEMENT, Status.NAMED):
            self.use(state, operand)
            return
        owner = target.instance if isinstance(target, Class) else Instance("?")
        member = self.members.member(owner, parameter.field or parameter.name)
        field = ast.Attribute(ast.Name(type_name(owner)), parameter.field or parameter.name, ast.Load())
        self.store_unowned(operand, state, field, member)

    # Receivers

    def _check_receiver(self, receiver: Operand, method: str, state: State) -> None:
        for kind in members(receiver.type):
            if isinstance(kind, Instance) and self.kinds.kind(kind) in {"ending", "handle"}:
                if not self.kinds.usable_after(kind, method):
                    self.use(state, receiver)

    def _end_receiver(self, receiver: Operand, method: str, state: State) -> None:
        for kind in members(receiver.type):
            if isinstance(kind, Instance) and self.kinds.ends_receiver(kind, method):
                self.move(state, receiver, receiver.node)

    def _forget_given(self, arguments: Sequence[Argument], state: State) -> None:
        """Whoever is given an object may change its fields."""
        for argument in arguments:
            place, value = argument.operand.place, argument.operand.value
            if place is not None and value is None:
                self.lose_fields(place, state)

    def lose_fields(self, place: str, state: State) -> None:
        """What a place's fields hold is not known any more."""
        for path in [path for path in state.places if path.startswith(f"{place}.")]:
            for leaf in state.leaves(state.places.pop(path)):
                state.facts[leaf] = frozenset(
                    fact._replace(status=Status.BORROWED, where=None)
                    if fact.status is Status.FIELD
                    else fact
                    for fact in state.facts[leaf]
                )

    def _never_returns(self, callee: Type) -> bool:
        if not isinstance(callee, Function):
            return qualified_name(callee) in {
                "typing.assert_never", "sys.exit", "pytest.fail", "pytest.skip", "exit", "os._exit",
            }
        returns = callee.info.node.returns
        return returns is not None and ast.unparse(returns).rpartition(".")[2] in {"NoReturn", "Never"}


def qualified_name(callee: Type) -> str:
    """The dotted name of what is called; empty when it is not known."""
    if isinstance(callee, Function):
        return callee.info.qualified
    return callee.instance.name if isinstance(callee, Class) else ""

