"""What the checker reports, and how it reads."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import attrs

__all__ = ["Finding", "Note", "Report"]


@attrs.frozen
class Note:
    """Where it began: the move, the taking, the parameter."""

    line: int
    column: int
    end_column: int
    source: str
    text: str


@attrs.frozen
class Finding:
    """One mistake: where, what, why, and the way out."""

    rule: str
    path: str
    line: int
    column: int
    end_column: int
    source: str
    message: str
    note: Note | None
    help: str

    def render(self) -> str:
        """The text form: the error with its line, the note with its line, the help."""
        parts = [f"{self.path}:{self.line}:{self.column}: {self.rule} {self.message}"]
        parts += _excerpt(self.line, self.column, self.end_column, self.source)
        if self.note is not None:
            note = self.note
            parts.append(f"  note: {note.text} ({self.path}:{note.line})")
            parts += _excerpt(note.line, note.column, note.end_column, note.source)
        parts.append(f"  help: {self.help}")
        return "\n".join(parts)

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return attrs.asdict(self)


def _excerpt(line: int, column: int, end_column: int, source: str) -> list[str]:
    width = max(1, min(end_column, len(source) + 1) - column)
    return [f"{line:5} | {source}", f"      | {' ' * (column - 1)}{'^' * width}"]


@attrs.frozen
class Report:
    """All findings of a run, and what it read."""

    findings: tuple[Finding, ...]
    files: int
    lines: int
    seconds: float
    unreadable: list[tuple[str, str]] = attrs.field(factory=list[tuple[str, str]])
    consuming_calls: int = 0
    """Arguments and receivers of consuming calls that were resolved and judged."""

    @property
    def statistics(self) -> Mapping[str, int]:
        """Findings by rule."""
        return dict(sorted(Counter(finding.rule for finding in self.findings).items()))

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "findings": [finding.as_dict() for finding in self.findings],
            "files": self.files,
            "lines": self.lines,
            "consuming_calls": self.consuming_calls,
            "seconds": round(self.seconds, 3),
            "statistics": dict(self.statistics),
            "unreadable": [list(entry) for entry in self.unreadable],
        }
