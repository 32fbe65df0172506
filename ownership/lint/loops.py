"""Loops, to their fix point, and comprehensions, which are loops into a fresh container."""

import ast
from abc import abstractmethod
from collections.abc import Callable, Sequence

import attrs

from ownership.lint.captures import Captures
from ownership.lint.containers import Rounds
from ownership.lint.operands import Operand
from ownership.lint.state import State, Status, join_all
from ownership.lint.types import ANY

__all__ = ["Jumps", "Loops"]

_MOST_PASSES = 8


@attrs.define(eq=False)
class Jumps:
    """States that leave a block by the side: where they go is up to what is around it."""

    breaks: list[State] = attrs.field(factory=list[State])
    continues: list[State] = attrs.field(factory=list[State])
    exits: list[tuple[State, ast.AST]] = attrs.field(factory=list[tuple[State, ast.AST]])
    """By ``return`` and ``raise``, with the statement."""


class Loops(Captures):
    """Everything that runs more than once."""

    jumps: Jumps

    @abstractmethod
    def block(self, body: Sequence[ast.stmt], state: State) -> State | None:
        """Run statements; None when the end is not reached."""
        ...

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
        head, passes, is_stable = entry, 0, False
        self.silent += 1
        while not is_stable and passes < _MOST_PASSES:
            back, _jumps = self._pass(node, head, body)
            joined = join_all([head, back], self.joint(node)) or head
            head, passes, is_stable = joined, passes + 1, joined.is_same(head)
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
        self.use_whole(state, iterable)
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
        self._check_rounds(rounds, ends)
        spent = head.copy()
        self.end_rounds(rounds, ends, spent)
        after = self.block(node.orelse, spent)
        for left in jumps.breaks:
            self.end_rounds(rounds, [*ends, left], left)
            self._leave_rest(rounds, left)
        self.temporaries = mine
        return join_all([after, *jumps.breaks], self.joint(node.body[0]))

    def _leave_rest(self, rounds: Rounds, state: State) -> None:
        """A ``break`` leaves elements behind; whether there were any, nobody knows."""
        for _, iterable in rounds:
            self.release(state, iterable)

    def _check_rounds(self, rounds: Rounds, ends: Sequence[State]) -> None:
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
                        self.blame(leaf)
                        self.release(end, Operand(whole.node, ANY, leaf))
