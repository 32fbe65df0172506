"""What an expression gave, as far as it is followed, and where findings are put."""

import ast

import attrs

from ownership.lint.findings import Finding, Note
from ownership.lint.index import Module
from ownership.lint.rules import HELP
from ownership.lint.state import Value
from ownership.lint.types import ANY, Type

__all__ = ["Operand", "Sink", "span"]


@attrs.frozen
class Operand:
    """What an expression gave: its type, and the value when it is followed."""

    node: ast.AST
    type: Type = ANY
    value: Value | None = None
    place: str | None = None
    parts: "tuple[Operand, ...] | None" = None
    """A tuple, or what is iterated side by side."""
    is_keys: bool = False
    """Iterating it gives nothing that is followed."""
    is_new: bool = False
    """An object that was made here, by a call of its class."""


@attrs.define(eq=False)
class Sink:
    """Findings of one file, each once."""

    path: str
    module: Module
    found: dict[tuple[str, int, int, str], Finding] = attrs.field(
        factory=dict[tuple[str, int, int, str], Finding]
    )
    consumed: set[tuple[int, int, int]] = attrs.field(factory=set[tuple[int, int, int]])
    """Where something is given to a call that consumes it."""

    def count(self, node: ast.AST) -> None:
        """A call consumes what stands here; a loop that is followed twice counts once."""
        self.consumed.add(span(node))

    def add(self, rule: str, message: str, node: ast.AST, note: tuple[ast.AST, str] | None) -> None:
        line, column, end = span(node)
        source = self._line(line)
        said: Note | None = None
        if note is not None:
            at, start, stop = span(note[0])
            said = Note(at, start, stop, self._line(at), note[1])
        # What is lost is lost once, whatever else happens to its name.
        key = rule, line, column, "" if rule == "OWN003" else message
        if key not in self.found:
            self.found[key] = Finding(
                rule, self.path, line, column, end, source, message, said, HELP[rule]
            )

    def _line(self, number: int) -> str:
        lines = self.module.lines
        return lines[number - 1] if 0 < number <= len(lines) else ""


def span(node: ast.AST) -> tuple[int, int, int]:
    line, column = getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
    end_line, end = getattr(node, "end_lineno", line), getattr(node, "end_col_offset", column + 1)
    return line, column + 1, (end if end_line == line else 10_000) + 1
