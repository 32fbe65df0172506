"""What closures and comprehensions take from around them."""

import ast
from collections.abc import Sequence

from ownership.lint.containers import Rounds
from ownership.lint.expressions import Comprehension, Expressions
from ownership.lint.operands import Operand
from ownership.lint.state import Fact, State, Status, Value
from ownership.lint.types import ANY, Instance

__all__ = ["Captures"]


class Captures(Expressions):
    """Bodies that run later, or any number of times."""

    def captured(
        self,
        node: ast.AST,
        body: ast.expr | Sequence[ast.stmt],
        args: ast.arguments,
        what: str,
        state: State,
    ) -> None:
        """Report handles that a function's body takes from around it."""
        own = {arg.arg for arg in [*args.posonlyargs, *args.args, *args.kwonlyargs]}
        for default in [*args.defaults, *(one for one in args.kw_defaults if one is not None)]:
            operand = self.eval(default, state)
            if self.has(state, operand, Status.LIVE, Status.ELEMENT):
                self.capture(state, operand, what)
            self.use(state, operand)
        nodes = [body] if isinstance(body, ast.expr) else list(body)
        seen: set[str] = set()
        for inner in (inner for one in nodes for inner in ast.walk(one)):
            if not isinstance(inner, ast.Name) or inner.id in own | seen:
                continue
            seen.add(inner.id)
            operand = Operand(inner, ANY, state.places.get(inner.id))
            if self.has(state, operand, Status.LIVE, Status.ELEMENT):
                self.capture(state, operand, what)
        if isinstance(body, ast.expr):
            for value in self._spent_by(body, state, own):
                self.capture(state, Operand(node, ANY, value), what)

    def _spent_by(self, body: ast.expr, state: State, own: set[str]) -> list[Value]:
        """Values from around it that evaluating an expression would move."""
        trial = state.copy()
        for name in own:
            trial.places.pop(name, None)
            trial.types[name] = ANY
        self.silent += 1
        temporaries, self.temporaries = self.temporaries, []
        self.eval(body, trial)
        self.temporaries, self.is_dead = temporaries, False
        self.silent -= 1
        return [value for value in state.facts if self._is_newly_moved(value, state, trial)]

    def _is_newly_moved(self, value: Value, state: State, after: State) -> bool:
        before = {fact.status for fact in state.facts[value]}
        now = {fact.status for fact in after.facts.get(value, frozenset[Fact]())}
        return Status.MOVED in now - before

    def argument(self, node: ast.expr, state: State, *, defers: bool) -> Operand:
        if isinstance(node, ast.GeneratorExp):
            return self.comprehension(node, [node.elt], state, runs_now=not defers)
        return self.eval(node, state)

    # Comprehensions

    def comprehension(
        self,
        node: Comprehension,
        elements: Sequence[ast.expr],
        state: State,
        *,
        runs_now: bool = False,
    ) -> Operand:
        rounds: Rounds = []
        mine, self.temporaries = self.temporaries, []
        iterable = self.eval(node.generators[0].iter, state)
        self.use_whole(state, iterable)
        inner: State = state.copy()
        skipped: list[State] = []
        for number, generator in enumerate(node.generators):
            if number:
                iterable = self.eval(generator.iter, inner)
                self.use_whole(inner, iterable)
            given = self.iterate(generator.target, iterable, inner, rounds)
            self.bind(generator.target, given, inner)
            if generator.is_async:
                self.hold(inner, node)
            for test in generator.ifs:
                yes, no = self.narrow(test, inner)
                skipped += [no] if no is not None else []
                inner = yes if yes is not None else inner
        made = Operand(node)
        for element in elements:
            made = self.eval(element, inner)
            self.use(inner, made)
        result = self._collect(node, made, inner, state)
        is_lazy = isinstance(node, ast.GeneratorExp) and not runs_now
        self._report_captures(node, state, inner, rounds, is_lazy=is_lazy)
        self.end_rounds(rounds, [inner, *skipped], state)
        self.temporaries = mine + ([result.value] if result.value is not None else [])
        self.is_dead = False
        return result

    def _collect(self, node: Comprehension, made: Operand, inner: State, state: State) -> Operand:
        """The container that the rounds have filled."""
        kind = Instance("list", (made.type,))
        if isinstance(node, ast.GeneratorExp) and not self.leaves(inner, made):
            return Operand(node, kind)
        container = self.empty_container(node, "list", state)
        value = container.value
        if value is not None and self.leaves(inner, made):
            inner.facts[value] = frozenset()
            self.put_locally(value, made, inner, made.node)
            state.facts[value] = inner.facts[value]
        return Operand(node, kind, value)

    def _report_captures(
        self, node: Comprehension, state: State, inner: State, rounds: Rounds, *, is_lazy: bool
    ) -> None:
        """A handle from outside is moved by a round: there may be none, or many."""
        iterated = {leaf for _, whole in rounds for leaf in self.leaves(state, whole)}
        names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
        what = "a generator expression" if is_lazy else "a comprehension"
        for value in [value for value in state.facts if value not in iterated]:
            is_named = is_lazy and self.is_ours(state, value) and names & set(state.holders(value))
            if self._is_newly_moved(value, state, inner) or is_named:
                moves = [fact.where for fact in inner.facts[value] if fact.status is Status.MOVED]
                at = next((where for where in moves if isinstance(where, ast.expr)), node)
                self.capture(state, Operand(at, ANY, value), what)
