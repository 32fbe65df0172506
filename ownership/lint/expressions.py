"""Expressions, in the order in which Python evaluates them."""

import ast
from abc import abstractmethod
from collections.abc import Sequence

from ownership.lint.narrowing import Narrowing
from ownership.lint.operands import Operand
from ownership.lint.state import State, Status, Value, join_all
from ownership.lint.stores import path_of
from ownership.lint.types import ANY, NONE, Class, Instance, Type, members

__all__ = ["Comprehension", "Expressions"]

Comprehension = ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp


class Expressions(Narrowing):
    """What an expression gives, and what it does to the handles in it."""

    @abstractmethod
    def captured(
        self,
        node: ast.AST,
        body: ast.expr | Sequence[ast.stmt],
        args: ast.arguments,
        what: str,
        state: State,
    ) -> None:
        """Report handles that a function's body takes from around it."""
        ...

    @abstractmethod
    def comprehension(
        self,
        node: Comprehension,
        elements: Sequence[ast.expr],
        state: State,
        *,
        runs_now: bool = False,
    ) -> Operand:
        """Evaluate a comprehension as a loop whose rounds put into a fresh container."""
        ...

    def eval(self, node: ast.expr, state: State) -> Operand:
        operand = self._evaluate(node, state)
        if operand.value is not None and not self.silent and self._is_handle(operand, state):
            line = getattr(node, "lineno", 0)
            self.handled.setdefault(line, self.name_of(operand, operand.value))
        return operand

    def _is_handle(self, operand: Operand, state: State) -> bool:
        facts = state.facts.get(operand.value or 0, ())
        return any(
            fact.status is not Status.PLAIN
            and (fact.type is None or self.kinds.kind(fact.type) != "ending")
            for fact in facts
        )

    def _evaluate(self, node: ast.expr, state: State) -> Operand:
        match node:
            case ast.Name():
                return self._name(node, state)
            case ast.Attribute():
                return self._attribute(node, state)
            case ast.Call():
                return self.call(node, state)
            case ast.Constant():
                return Operand(
                    node, NONE if node.value is None else Instance(type(node.value).__name__)
                )
            case ast.Await():
                return self._await(node, state)
            case ast.Tuple() | ast.List() | ast.Set():
                return self._sequence(node, node.elts, state)
            case ast.Dict():
                return self._dict(node, state)
            case ast.Subscript():
                return self._subscript(node, state)
            case ast.NamedExpr():
                operand = self.eval(node.value, state)
                self.bind(node.target, operand, state)
                return Operand(
                    node, operand.type, operand.value, path_of(node.target), operand.parts
                )
            case _:
                return self._composed(node, state)

    def _composed(self, node: ast.expr, state: State) -> Operand:
        match node:
            case ast.IfExp():
                return self._choice(node, node.test, node.body, node.orelse, state)
            case ast.BoolOp():
                return self._bool(node, state)
            case ast.Compare():
                return self._compare(node, state)
            case ast.Lambda():
                self.captured(node, node.body, node.args, "a lambda", state)
                return Operand(node, ANY)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
                return self.comprehension(node, [node.elt], state)
            case ast.DictComp():
                return self.comprehension(node, [node.key, node.value], state)
            case ast.Starred():
                return self.eval(node.value, state)
            case ast.Yield() | ast.YieldFrom():
                return self._yield(node, state)
            case _:
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        self.use(state, self.eval(child, state))
                return Operand(node, ANY)

    def _name(self, node: ast.Name, state: State) -> Operand:
        kind = state.types.get(node.id)
        if kind is None:
            outer = self.outer.get(node.id)
            kind = outer if outer is not None else self.members.named(node.id, self.module)
        return Operand(node, kind, state.places.get(node.id), node.id)

    def _await(self, node: ast.Await, state: State) -> Operand:
        if isinstance(node.value, ast.Call):
            operand = self.call(node.value, state, is_awaited=True)
        else:
            operand = self.eval(node.value, state)
        made = set(self.leaves(state, operand))
        kept = {value: state.facts.pop(value) for value in made}
        self.hold(state, node)
        state.facts.update(kept)
        return Operand(node, operand.type, operand.value, parts=operand.parts)

    # Attributes and subscripts

    def _attribute(self, node: ast.Attribute, state: State) -> Operand:
        base = self.eval(node.value, state)
        path = path_of(node)
        if path is not None and path in state.places:
            kind = state.types.get(path) or self.members.attribute(base.type, node.attr)
            return Operand(node, kind, state.places[path], path)
        kind = state.types.get(path or "") or self.members.attribute(base.type, node.attr)
        if not self.kinds.is_followed(kind):
            return Operand(node, kind, None, path)
        value = self._field_value(node, base, kind, path, state)
        if path is not None:
            state.places[path] = value
        return Operand(node, kind, value, path)

    def _field_value(
        self, node: ast.Attribute, base: Operand, kind: Type, path: str | None, state: State
    ) -> Value:
        member = self.field_of(base.type, node.attr)
        status, where = Status.FREE, None
        if member is not None and member.sort == "property":
            status = Status.BORROWED
        elif member is not None and member.mark == "owns":
            status = Status.FIELD
        carrier = base.value if self._is_message(base) else None
        if carrier is not None and status is Status.FIELD:
            status, where = self._carried(carrier, node.attr, state)
        value = self.number(("field", path or id(node)))
        if value in state.facts and state.holders(value):
            value = self.number(("field again", id(node)))
        state.facts[value] = self.kinds.facts(kind, status, where)
        if path is not None:
            state.initial[path] = state.facts[value]
        self.labels[value], self.origins[value] = ast.unparse(node), node
        self.bound.add(value)
        if carrier is not None:
            self.carrier[value] = carrier
        return value

    def _is_message(self, base: Operand) -> bool:
        return any(self.kinds.kind(kind) == "message" for kind in members(base.type))

    def _carried(self, carrier: Value, name: str, state: State) -> tuple[Status, ast.AST | None]:
        """In which condition the handle in a message is."""
        facts = [fact for fact in state.facts.get(carrier, ()) if fact.status is not Status.PLAIN]
        taken = state.facts.get(self.emptied.get(carrier, {}).get(name, 0))
        if taken and facts and all(fact.status is Status.FREE for fact in facts):
            return Status.MOVED, next(fact.where for fact in taken)
        for status in (Status.MOVED, Status.BORROWED):
            for fact in facts:
                if fact.status is status and len({one.status for one in facts}) == 1:
                    return status, fact.where
        is_ours = any(fact.status is Status.LIVE for fact in facts)
        return Status.ELEMENT if is_ours else Status.FREE, None

    def _subscript(self, node: ast.Subscript, state: State) -> Operand:
        container = self.eval(node.value, state)
        if isinstance(container.type, Class):
            kind = self.members.annotations.read(node, self.module, self.function.owner)[0]
            return Operand(node, Class(kind) if isinstance(kind, Instance) else ANY)
        self.use(state, self.eval(node.slice, state))
        is_known = container.parts is not None or container.value in state.parts
        if isinstance(node.slice, ast.Slice) and not is_known:
            return Operand(node, container.type, container.value, parts=container.parts)
        return self.look(node, container, state)

    # Displays

    def _sequence(self, node: ast.expr, elements: Sequence[ast.expr], state: State) -> Operand:
        if not elements:
            name = "tuple" if isinstance(node, ast.Tuple) else "list"
            return self.empty_container(node, name, state)
        parts: list[Operand] = []
        for element in elements:
            operand = self.eval(element, state)
            if isinstance(element, ast.Starred) and operand.parts is not None:
                parts += operand.parts
            else:
                parts.append(operand)
        if not any(self.leaves(state, part) for part in parts):
            if isinstance(node, ast.Tuple):
                return Operand(node, ANY, parts=tuple(parts))
            return self.empty_container(node, "list", state)
        return Operand(node, Instance("list"), parts=tuple(parts))

    def _dict(self, node: ast.Dict, state: State) -> Operand:
        container = self.empty_container(node, "dict", state)
        for key, value in zip(node.keys, node.values, strict=True):
            if key is not None:
                self.use(state, self.eval(key, state))
            self.put(container, self.eval(value, state), state, value)
        self.temporaries.append(container.value or 0)
        return container

    # Choices

    def _choice(
        self, node: ast.expr, test: ast.expr, body: ast.expr, orelse: ast.expr, state: State
    ) -> Operand:
        yes, no = self.narrow(test, state)
        first = self.eval(body, yes) if yes is not None else None
        second = self.eval(orelse, no) if no is not None else None
        return self._either(node, [(yes, first), (no, second)], state)

    def _bool(self, node: ast.BoolOp, state: State) -> Operand:
        ends: list[tuple[State | None, Operand | None]] = []
        current: State | None = state.copy()
        for value in node.values[:-1]:
            if current is None:
                break
            yes, no = self.narrow(value, current)
            stop, current = (no, yes) if isinstance(node.op, ast.And) else (yes, no)
            if stop is not None:
                ends.append((stop, self.again(value, stop)))
        if current is not None:
            ends.append((current, self.eval(node.values[-1], current)))
        return self._either(node, ends, state)

    def _either(
        self,
        node: ast.expr,
        ends: Sequence[tuple[State | None, Operand | None]],
        state: State,
    ) -> Operand:
        """Join the sides of a choice; what the choice gives is what its side gave."""
        kinds: list[Type] = []
        is_followed = any(
            end is not None and operand is not None and self.leaves(end, operand)
            for end, operand in ends
        )
        name = f"<{id(node)}>"
        for end, operand in ends:
            if end is None or operand is None:
                continue
            kinds.append(operand.type)
            if is_followed:
                value = self._whole(operand.node, operand, end)
                if value is None:
                    value = self.number((id(operand.node), "plain"))
                    end.facts[value] = self.plain_facts(operand)
                    self.labels[value], self.origins[value] = ast.unparse(node), node
                end.places[name] = value
        self._give_way(node, name, [end for end, _ in ends if end is not None])
        joined = join_all([end for end, _ in ends], self.joint(node))
        if joined is None:
            self.is_dead = True
            return Operand(node, ANY)
        self.become(state, joined)
        value = state.places.pop(name, None)
        if value is not None:
            self.temporaries.append(value)
        return Operand(node, self.type_of(kinds), value)

    def _give_way(self, node: ast.expr, name: str, ends: Sequence[State]) -> None:
        """A loop makes a choice anew: what it gave in the round before is another value by now."""
        for value in self.joints(node, name, len(ends)):
            for end in ends:
                if value in end.facts:
                    self.set_aside(end, value)
                    del end.facts[value]
                end.begin_anew(value, self.earlier(value))

    def _compare(self, node: ast.Compare, state: State) -> Operand:
        identity = (ast.Is, ast.IsNot, ast.Eq, ast.NotEq, ast.In, ast.NotIn)
        asks = all(isinstance(op, identity) for op in node.ops)
        for one in (node.left, *node.comparators):
            operand = self.eval(one, state)
            if not asks:
                self.use(state, operand)
        return Operand(node, Instance("bool"))

    def _yield(self, node: ast.Yield | ast.YieldFrom, state: State) -> Operand:
        if node.value is not None:
            operand = self.eval(node.value, state)
            lends = any(
                name.endswith("contextmanager") or name == "fixture"
                for name in self.function.decorators
            )
            if lends:
                self.use(state, operand)
            else:
                self.move(state, operand)
        return Operand(node, ANY)

    # Lambdas and comprehensions
