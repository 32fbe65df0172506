"""Calls: each argument is borrowed or moved as the parameter says, and the result is owned."""

import ast
from abc import abstractmethod
from collections.abc import Sequence

import attrs

from ownership.lint.index import FunctionInfo
from ownership.lint.known_calls import Argument, KnownCalls, qualified_name
from ownership.lint.members import Parameter
from ownership.lint.operands import Operand
from ownership.lint.state import State, Status, Value
from ownership.lint.types import ANY, Class, Function, Instance, Type, Variable, members

__all__ = ["Calls"]


class Calls(KnownCalls):
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
            self.check_receiver(receiver, node.func.attr, state)
        else:
            callee = self.eval(node.func, state).type
        name = qualified_name(callee)
        arguments = self._arguments(node, state, defers=self.is_deferring(name))
        self.before_call(state)
        builtin = self._builtin(node, name, arguments, state)
        if builtin is not None:
            return builtin
        self._check_deferred(name, arguments, state)
        is_forged = self._forge(node, callee, arguments)
        result = self._apply(node, callee, arguments, state, is_awaited=is_awaited)
        if is_forged:
            self.release(state, result)
        if receiver is not None and isinstance(node.func, ast.Attribute):
            self.end_receiver(receiver, node.func.attr, state)
            self.after_method(receiver, callee, state)
        self._forget_given(arguments, state)
        if self.never_returns(callee):
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
        found += [
            Argument(self.argument(one.value, state, defers=defers), one.arg, one.arg is None)
            for one in node.keywords
        ]
        return found

    @abstractmethod
    def argument(self, node: ast.expr, state: State, *, defers: bool) -> Operand:
        """Evaluate an argument; a generator expression is run by the call that gets it."""
        ...

    # Deferred calls

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
        self._give(target, arguments, state, result)
        return attrs.evolve(result, is_new=isinstance(target, Class))

    def _coroutine(self, node: ast.Call, arguments: Sequence[Argument], state: State) -> Operand:
        for argument in arguments:
            if self.has(state, argument.operand, Status.LIVE, Status.ELEMENT):
                self.capture(state, argument.operand, "a coroutine")
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
        is_tuple = isinstance(kind, Instance) and kind.name == "tuple"
        if isinstance(kind, Instance) and is_tuple and len(kind.args) > 1:
            kinds = enumerate(kind.args)
            parts = tuple(self._made(node, one, state, number) for number, one in kinds)
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
        if info.passes == "":
            info.passes = self._passed_through(info)
        return info.passes

    def _passed_through(self, info: FunctionInfo) -> str | None:
        names: set[str | None] = set()
        for node in ast.walk(info.node):
            if isinstance(node, ast.Return):
                names.add(node.value.id if isinstance(node.value, ast.Name) else None)
            elif (
                isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in names
            ):
                return None
        (name,) = names if len(names) == 1 else (None,)
        parameter = next((one for one in info.parameters if one.arg == name), None)
        if parameter is None:
            return None
        kind, mark = self.members.annotations.read(parameter.annotation, info.module, info.owner)
        is_any = isinstance(kind, Variable)
        return name if (is_any or self.kinds.is_followed(kind)) and not mark else None

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
        self, target: Type, arguments: Sequence[Argument], state: State, result: Operand
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
                number == 0
                if not ended
                else (argument.keyword or (parameter and parameter.name)) == ended
            )
            if is_ended or (parameter is not None and parameter.mark):
                self._consume(argument.operand, state, result)
            elif parameter is not None and parameter.field is not None:
                self._store_by_init(target, parameter, argument.operand, state)
            else:
                self.use(state, argument.operand)

    def _consume(self, operand: Operand, state: State, result: Operand) -> None:
        lands = [value for value in self.leaves(state, operand) if value in state.lent]
        lease = result.value if self._is_named(result, state) else None
        self.sink.count(operand.node)
        self.move(state, operand, lease=lease, ends=True)
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
        self, target: Type, parameter: Parameter, operand: Operand, state: State
    ) -> None:
        """A generated ``__init__`` stores its arguments in fields that no mark makes owners."""
        if not self.has(state, operand, Status.LIVE, Status.ELEMENT, Status.NAMED):
            self.use(state, operand)
            return
        owner = target.instance if isinstance(target, Class) else Instance("?")
        member = self.members.member(owner, parameter.field or parameter.name)
        field = ast.Attribute(
            ast.Name(owner.name.rpartition(".")[2]), parameter.field or parameter.name, ast.Load()
        )
        self.store_unowned(operand, state, field, member)

    # Receivers

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
