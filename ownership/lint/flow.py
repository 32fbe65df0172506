"""One function from its first statement to each of its ends."""

import ast
from collections.abc import Mapping, Sequence

from ownership.lint.index import FunctionInfo, class_in
from ownership.lint.kinds import Kinds
from ownership.lint.loops import Jumps
from ownership.lint.methods import Methods, Summary
from ownership.lint.operands import Operand, Sink
from ownership.lint.state import State, Status, join_all
from ownership.lint.stores import path_of
from ownership.lint.types import ANY, NONE, Function, Type

__all__ = ["Flow", "Summaries"]


class Summaries:
    """What methods do to the owner fields of their own object, worked out on first use."""

    def __init__(self, kinds: Kinds) -> None:
        self._kinds = kinds
        self._known: dict[int, Summary] = {}

    def of(self, function: FunctionInfo) -> Summary:
        """The summary of a method; a recursive one is not known."""
        key = id(function)
        if key not in self._known:
            self._known[key] = None
            sink = Sink("", function.module)
            flow = Flow(function, self._kinds, sink, self, is_test=False)
            flow.silent = 1
            self._known[key] = flow.run()
        return self._known[key]


class Flow(Methods):
    """Runs a function's statements over a state."""

    def __init__(
        self,
        function: FunctionInfo,
        kinds: Kinds,
        sink: Sink,
        summaries: Summaries,
        *,
        is_test: bool,
        outer: Mapping[str, Type] | None = None,
    ) -> None:
        super().__init__(function, kinds, sink, is_test=is_test)
        self.jumps = Jumps()
        self.outer = dict(outer or {})
        self.tested = {}
        self._fields = {}
        self._lost = []
        self._summaries = summaries
        self.nested: dict[int, tuple[FunctionInfo, dict[str, Type]]] = {}

    def summary_of(self, function: FunctionInfo) -> Summary:
        return self._summaries.of(function)

    def run(self) -> Summary:
        """Follow every path; report at each end what is left."""
        node = self.function.node
        if all(_is_empty(statement) for statement in node.body):
            return {}  # A declaration: of a protocol, an overload, an abstract method.
        end = self.block(node.body, self.entry())
        exits = list(self.jumps.exits)
        if end is not None:
            exits.append((end, node.body[-1]))
        for state, at in exits:
            self.leave(state, at)
        return self.summary([state for state, at in exits if not isinstance(at, ast.Raise)])

    # Statements

    def block(self, body: Sequence[ast.stmt], state: State) -> State | None:
        """Run statements; None when the end is not reached."""
        current: State | None = state
        for node in body:
            if current is None:
                break
            current = self.statement(node, current)
        return current

    def statement(self, node: ast.stmt, state: State) -> State | None:
        """Run one statement, and look at what it made and left."""
        outer, self.temporaries = self.temporaries, []
        end = self._statement(node, state)
        if self.is_dead:
            self.is_dead = False
            end = None
        if end is not None:
            self.sweep(end, self.temporaries)
        self.temporaries = outer
        return end

    def _statement(self, node: ast.stmt, state: State) -> State | None:
        match node:
            case ast.Expr():
                operand = self.eval(node.value, state)
                if isinstance(node.value, ast.Name | ast.Attribute):
                    self.use(state, operand)
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                self._assignment(node, state)
            case ast.Return() | ast.Raise():
                self._exit(node, state)
                return None
            case ast.If():
                yes, no = self.narrow(node.test, state)
                first = self.block(node.body, yes) if yes is not None else None
                second = self.block(node.orelse, no) if no is not None else None
                return join_all([first, second], self.joint(node))
            case ast.Break():
                self.jumps.breaks.append(state)
                return None
            case ast.Continue():
                self.jumps.continues.append(state)
                return None
            case ast.Assert():
                return self.narrow(node.test, state)[0]
            case _:
                return self._compound(node, state)
        return state

    def _compound(self, node: ast.stmt, state: State) -> State | None:
        match node:
            case ast.While():
                return self.while_(node, state)
            case ast.For() | ast.AsyncFor():
                return self.for_(node, state)
            case ast.Try() | ast.TryStar():
                return self.try_(node, state)
            case ast.With() | ast.AsyncWith():
                return self.with_(node, state)
            case ast.Match():
                return self.match(node, state)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._nested(node, state)
            case ast.ClassDef():
                self._nested_class(node, state)
            case ast.Delete():
                for target in node.targets:
                    self._delete(target, state)
            case _:
                pass
        return state

    def _assignment(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign, state: State) -> None:
        if isinstance(node, ast.Assign):
            operand = self.eval(node.value, state)
            for target in node.targets:
                self.bind(target, operand, state)
        elif isinstance(node, ast.AugAssign):
            container = self.eval(node.target, state)
            operand = self.eval(node.value, state)
            if self.leaves(state, operand):
                self.before_call(state)
                self.put(container, operand, state, node.target)
        else:
            kind, _ = self.members.annotations.read(
                node.annotation, self.module, self.function.owner
            )
            if node.value is not None:
                operand = self.eval(node.value, state)
                if kind != ANY and not self.kinds.is_followed(kind) and kind != NONE:
                    # Whoever says so takes this name out of our sight, not the handle's others.
                    if operand.place is None:
                        self.release(state, operand)
                    operand = Operand(operand.node, kind)
                if kind != ANY or (operand.value is None and operand.parts is None):
                    operand = Operand(
                        operand.node, kind, operand.value, operand.place, operand.parts
                    )
                self.bind(node.target, operand, state)
            path = path_of(node.target)
            if path is not None and kind != ANY:
                state.types[path] = kind

    def _exit(self, node: ast.Return | ast.Raise, state: State) -> None:
        value = node.value if isinstance(node, ast.Return) else node.exc
        if value is not None:
            operand = self.eval(value, state)
            if isinstance(node, ast.Return) and not self._lends(operand):
                self.move(state, operand)
            else:
                self.use(state, operand)
        if self.is_dead:
            self.is_dead = False
            return
        self.sweep(state, self.temporaries)
        self.jumps.exits.append((state, node))

    def _lends(self, operand: Operand) -> bool:
        """Whether a ``return`` gives a handle for looking at: a property, or what was given."""
        if self.function.is_property:
            return True
        return operand.place is not None and operand.place == self.passed_through(self.function)

    def _delete(self, target: ast.expr, state: State) -> None:
        if isinstance(target, ast.Tuple):
            for one in target.elts:
                self._delete(one, state)
            return
        if isinstance(target, ast.Subscript):
            container = self.eval(target.value, state)
            self.eval(target.slice, state)
            if self.has(state, container, Status.FIELD, Status.LIVE):
                message = f"`del {ast.unparse(target)}` drops the handles in it"
                self.report("OWN003", message, target)
            return
        path = path_of(target)
        self.eval(target, state)
        value = state.places.pop(path, None) if path is not None else None
        for leaf in state.leaves(value):
            is_held = any(fact.status is Status.FIELD for fact in state.facts[leaf])
            if (self.is_ours(state, leaf) or is_held) and not state.holders(leaf):
                message = f"`del {path}` drops the handles in it"
                self.drop(state, leaf, message, target, None)

    # Functions inside

    def _nested_class(self, node: ast.ClassDef, state: State) -> None:
        """A class in a function: its methods are functions like any other."""
        for method in class_in(node, self.module).methods.values():
            outer = {**self.outer, **state.types}
            self.nested.setdefault(id(method.node), (method, outer))

    def _nested(self, node: ast.FunctionDef | ast.AsyncFunctionDef, state: State) -> None:
        self.captured(node, node.body, node.args, f"the function `{node.name}`", state)
        outer = {**self.outer, **state.types}
        info = FunctionInfo(node.name, self.module, node)
        if id(node) in self.nested:
            info = self.nested[id(node)][0]
        self.nested[id(node)] = info, outer
        state.types[node.name] = Function(info)

    # Methods of the own object


def _is_empty(node: ast.stmt) -> bool:
    """A docstring or an ellipsis."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
