"""Loops, to their fix point, and comprehensions, which are loops into a fresh container."""

import ast
from collections.abc import Callable, Sequence

import attrs

from ownership.lint.containers import Rounds
from ownership.lint.expressions import Expressions
from ownership.lint.moves import Operand
from ownership.lint.state import State, Status, join_all
from ownership.lint.types import ANY, Instance

__all__ = ["Jumps", "Loops"]

_MOST_PASSES = 8


@attrs.define(eq=False)
class Jumps:
    """States that leave a block by the side: where they go is up to what is around it."""

    breaks: list[State] = attrs.field(factory=list[State])
    continues: list[State] = attrs.field(factory=list[State])
    exits: list[tuple[State, ast.AST]] = attrs.field(factory=list[tuple[State, ast.AST]])
    """By ``return`` and ``raise``, with the statement."""


class Loops(Expressions):
    """Everything that runs more than once."""

    jumps: Jumps

    def _pass(
        self, node: ast.AST, head: State, body: Callable[[State], State | None]
    ) -> tuple[State | None, Jumps]:
        """Run a body once from the head; what comes back to the head, and how it was left."""
        outer, self.jumps = self.jumps, Jumps()
        end = body(head.copy())
        inner, self.jumps = self.jumps, outer
        back = join_all([end, *inner.continues], self.joint(node))
        return back, inner

    def _to_fix_point(
        self, node: ast.AST, entry: State, body: Callable[[State], State | None]
    ) -> State:
        head = entry
        self.silent += 1
        for _ in range(_MOST_PASSES):
            back, _jumps = self._pass(node, head, body)
            joined = join_all([head, back], self.joint(node))
            if joined is None or joined.is_same(head):
                break
            head = joined
        self.silent -= 1
        return head

    # Statements

    def while_(self, node: ast.While, state: State) -> State | None:
        """A ``while`` loop."""
        leaving: list[State | None] = []

        def body(head: State) -> State | None:
            yes, no = self.narrow(node.test, head)
            leaving[:] = [no]
            return None if yes is None else self.block(node.body, yes)

        head = self._to_fix_point(node, state, body)
        _, jumps = self._pass(node, head, body)
        self.jumps.exits += jumps.exits
        after = leaving[0]
        if after is not None and node.orelse:
            after = self.block(node.orelse, after)
        return join_all([after, *jumps.breaks], self.joint(node.body[0]))

    def for_(self, node: ast.For | ast.AsyncFor, state: State) -> State | None:
        """A ``for`` loop; its target takes the elements one by one."""
        iterable = self.eval(node.iter, state)
        mine, self.temporaries = self.temporaries, []
        rounds: Rounds = []

        def body(head: State) -> State | None:
            rounds.clear()
            if isinstance(node, ast.AsyncFor):
                self.hold(head, node)
            self.bind(node.target, self.iterate(node.target, iterable, head, rounds), head)
            return self.block(node.body, head)

        head = self._to_fix_point(node, state, body)
        back, jumps = self._pass(node, head, body)
        self.jumps.exits += jumps.exits
        ends = [*jumps.continues, *([back] if back is not None else [])]
        self._check_rounds(rounds, iterable, ends)
        after: State | None = head.copy()
        if after is not None:
            self.end_rounds(rounds, ends, after)
            if node.orelse:
                after = self.block(node.orelse, after)
        for left in jumps.breaks:
            self.end_rounds(rounds, [*ends, left], left)
            self._leave_rest(rounds, left)
        self.temporaries = mine
        return join_all([after, *jumps.breaks], self.joint(node.body[0]))

    def _leave_rest(self, rounds: Rounds, state: State) -> None:
        """A ``break`` leaves elements behind; whether there were any, nobody knows."""
        for _, iterable in rounds:
            self.release(state, iterable)

    def _check_rounds(self, rounds: Rounds, iterable: Operand, ends: Sequence[State]) -> None:
        """Elements of what nothing names must be ended in their round."""
        for element, whole in rounds:
            for end in ends:
                facts = end.facts.get(element, frozenset())
                is_left = any(fact.status is Status.ELEMENT for fact in facts)
                temporary = [leaf for leaf in self.leaves(end, whole) if not end.holders(leaf)]
                if is_left and temporary:
                    message = f"`{self.labels[element]}` is dropped: it leaves scope live"
                    self.report("OWN003", message, self.origins[element], None)
                    for leaf in temporary:
                        self.release(end, Operand(whole.node, ANY, leaf))

    # Comprehensions

    def run_comprehension(
        self,
        node: ast.expr,
        generators: Sequence[ast.comprehension],
        elements: Sequence[ast.expr],
        state: State,
        what: str,
        *,
        is_lazy: bool,
    ) -> Operand:
        rounds: Rounds = []
        inner = state.copy()
        outside = set(state.facts)
        made: Operand | None = None
        skipped: list[State] = []
        mine, self.temporaries = self.temporaries, []
        for number, generator in enumerate(generators):
            iterable = self.eval(generator.iter, state if number == 0 else inner)
            if number == 0:
                inner = state.copy()
                outside = set(state.facts)
            self.bind(generator.target, self.iterate(generator.target, iterable, inner, rounds), inner)
            if generator.is_async:
                self.hold(inner, node)
            for test in generator.ifs:
                yes, no = self.narrow(test, inner)
                skipped += [no] if no is not None else []
                inner = yes if yes is not None else inner
        for element in elements:
            made = self.eval(element, inner)
            self.use(inner, made)
        result = self._collect(node, made, inner, state)
        self._report_captures(node, state, inner, outside - self._iterated(rounds, state), what, is_lazy=is_lazy)
        self.end_rounds(rounds, [inner, *skipped], state)
        self.temporaries = mine + ([result.value] if result.value is not None else [])
        self.is_dead = False
        return result

    def _iterated(self, rounds: Rounds, state: State) -> set[int]:
        return {leaf for _, whole in rounds for leaf in self.leaves(state, whole)}

    def _collect(
        self, node: ast.expr, made: Operand | None, inner: State, state: State
    ) -> Operand:
        """The container that the rounds have filled."""
        kind = Instance("list", (made.type,)) if made is not None else Instance("list")
        if made is None or not self.leaves(inner, made):
            if isinstance(node, ast.GeneratorExp):
                return Operand(node, kind)
            container = self.empty_container(node, "list", state)
            return Operand(node, kind, container.value)
        found = {fact.status for leaf in self.leaves(inner, made) for fact in inner.facts[leaf]}
        container = self.empty_container(node, "list", state)
        if container.value is not None:
            state.facts[container.value] = frozenset()
            inner.facts[container.value] = frozenset()
            self._put_locally(container.value, made, inner, made.node)
            if found & {Status.LIVE, Status.ELEMENT, Status.BORROWED, Status.FREE, Status.NAMED}:
                state.facts[container.value] = inner.facts[container.value]
        return Operand(node, kind, container.value)

    def _report_captures(
        self,
        node: ast.expr,
        state: State,
        inner: State,
        outside: set[int],
        what: str,
        *,
        is_lazy: bool,
    ) -> None:
        """A handle from outside is moved by a round: there may be none, or many."""
        for value in outside & set(state.facts):
            is_moved = self._is_newly_moved(value, state, inner)
            names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
            is_named = is_lazy and self.is_ours(state, value) and names & set(state.holders(value))
            if is_moved or is_named:
                where = next((fact.where for fact in inner.facts[value] if fact.where is not None), node)
                at = where if isinstance(where, ast.expr) else node
                self.capture(state, Operand(at, ANY, value), what, node)
