"""Where a value is lost: dropped, held across a wait, or captured by what may never run."""

import ast

from ownership.lint.moves import Moves, text_of
from ownership.lint.operands import Operand
from ownership.lint.state import Fact, State, Status, Value
from ownership.lint.types import ANY

__all__ = ["Drops"]


class Drops(Moves):
    """Statements, paths and functions end: what is still ours then is lost."""

    def drop(
        self,
        state: State,
        value: Value,
        message: str,
        node: ast.AST,
        note: tuple[ast.AST | None, str] | None,
    ) -> None:
        """Report a value that nobody can end any more; once is enough for one mistake."""
        if value not in self.blamed:
            self.report("OWN003", message, node, note)
        self.release(state, Operand(node, value=value))

    def sweep(self, state: State, temporaries: list[Value]) -> None:
        """At the end of a statement: what it made and nothing names is dropped."""
        for value in temporaries:
            if value in self.landed:
                self._come_back(state, value)
            if value in self.bound or not self.is_ours(state, value) or state.holders(value):
                continue
            text = self.labels[value].partition("(")[0]
            message = f"the result of `{text}` is ignored, and dropped live"
            self.drop(state, value, message, self.origins[value], None)

    def _come_back(self, state: State, result: Value) -> None:
        """What a landing gives are the handles that were launched: whoever names them, has them."""
        is_ignored = (
            result not in self.bound and self.is_ours(state, result) and not state.holders(result)
        )
        if is_ignored:
            state.facts[result] = frozenset({Fact(Status.FREE)})
        before = [one for one in self.landed.pop(result) if one[0] in state.facts]
        for value, facts in before:
            if is_ignored:
                state.facts[value] = facts
                continue
            self._lent_for_good(state, value, facts)
            state.facts[value] = frozenset(
                fact if fact.status is Status.PLAIN else fact._replace(status=Status.BORROWED)
                for fact in facts
            )

    def _origin(self, state: State, value: Value) -> ast.AST:
        """Where a value was taken; a joint one, where the first that it may be was."""
        roots = sorted(fact.root[0] for fact in state.facts[value] if fact.root is not None)
        return self.origins[next((one for one in roots if one in self.origins), value)]

    def _lent_for_good(self, state: State, value: Value, facts: frozenset[Fact]) -> None:
        for fact in facts:
            if fact.status is Status.BORROWED:
                gone = state.facts.get(value, frozenset())
                wheres = [new.where for new in gone if new.where is not None]
                at = [*wheres, self.origins[value]][0]
                message = f"`{self.labels[value]}` is borrowed, but consumed here"
                self.report("OWN004", message, at, (fact.where, "borrowed here"))

    def leave(self, state: State, node: ast.AST) -> None:
        """A path ends here: report what is still live, and what was only borrowed."""
        for value in list(state.facts):
            if self.is_ours(state, value):
                message = f"`{self.labels[value]}` is dropped: it leaves scope live"
                self.drop(
                    state, value, message, self._origin(state, value), (node, "still live here")
                )
        for place, value in state.places.items():
            if self.is_own_field(place):
                for leaf in state.leaves(value):
                    self._check_field(state, leaf)
        for lent in state.lent.values():
            for value, facts in lent:
                self._lent_for_good(state, value, facts)

    def _check_field(self, state: State, value: Value) -> None:
        for fact in state.facts[value]:
            if fact.status is Status.MOVED and fact.where is not None and value not in self.blamed:
                message = f"`{text_of(fact.where)}` is borrowed, but consumed here"
                self.report("OWN004", message, fact.where, None)

    def hold(self, state: State, node: ast.AST) -> None:
        """An ``await``: report what is held across it."""
        for value in list(state.facts):
            if self.is_ours(state, value):
                message = f"`{self.labels[value]}` is held across an `await`"
                self.report("OWN006", message, node, self.taken(value))

    def capture(self, state: State, operand: Operand, what: str) -> None:
        """A handle goes where its end may never run."""
        values = self.leaves(state, operand)
        captured = {Status.LIVE, Status.BORROWED, Status.FIELD, Status.ELEMENT}
        if any(fact.status in captured for value in values for fact in state.facts[value]):
            for value in values:
                self.blame(value)
            name = self.name_of(operand, values[0])
            message = f"`{name}` is captured by {what}, which may never run"
            self.report("OWN005", message, operand.node, self.taken(values[0]))
        else:
            self.use(state, operand)
        for value in values:
            self.release(state, Operand(operand.node, ANY, value))
