"""Golden programs: small files with exactly the findings that are stored beside them.

A program is a text file, so that ruff, the type checkers and the move checker's run over this
repository don't see it. One that needs two modules has a line ``--- name.py`` before each.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import attrs

from ownership.lint import Finding, check_paths

__all__ = ["FOLDER", "Program", "as_stored", "programs", "stored"]

FOLDER = Path(__file__).parent
_MODULE = re.compile(r"^--- (\S+)\n", flags=re.MULTILINE)


@attrs.frozen
class Program:
    """One golden program.

    Attributes:
        name: of its file; a wrong program's begins with its rule.
        modules: text by file name.
        is_right: nothing may be found in it.
    """

    name: str
    modules: Mapping[str, str]
    is_right: bool

    @property
    def rule(self) -> str:
        """The rule that a wrong program breaks."""
        return self.name.partition("_")[0].upper()

    @property
    def golden(self) -> Path:
        """Where its findings are stored."""
        return FOLDER / "wrong" / f"{self.name}.json"

    def write(self, folder: Path) -> Path:
        """Write the modules into a folder of their own."""
        own = folder / self.name
        own.mkdir(parents=True)
        for name, text in self.modules.items():
            (own / name).write_text(text, encoding="utf-8")
        return own

    def check(self, folder: Path) -> list[Finding]:
        """Let the move checker read it; paths are told relative to the program."""
        own = self.write(folder)
        report = check_paths([own])
        assert not report.unreadable, report.unreadable
        return [attrs.evolve(found, path=Path(found.path).name) for found in report.findings]


def programs(kind: str) -> list[Program]:
    """All ``"wrong"`` or all ``"right"`` programs, by name."""
    return [_read(path) for path in sorted((FOLDER / kind).glob("*.txt"))]


def _read(path: Path) -> Program:
    text = path.read_text(encoding="utf-8")
    parts = _MODULE.split(text)
    modules = dict(zip(parts[1::2], parts[2::2], strict=True)) or {"program.py": text}
    return Program(path.stem, modules, is_right=path.parent.name == "right")


def stored(program: Program) -> object:
    """What is expected of a wrong program."""
    found: object = json.loads(program.golden.read_text(encoding="utf-8"))
    return found


def as_stored(findings: list[Finding]) -> object:
    """The findings in the form of the golden files: fields first, then the text as printed."""
    return {
        "findings": [
            {
                "rule": found.rule,
                "path": found.path,
                "line": found.line,
                "column": found.column,
                "message": found.message,
                "note": None
                if found.note is None
                else {
                    "line": found.note.line,
                    "column": found.note.column,
                    "text": found.note.text,
                },
                "help": found.help,
            }
            for found in findings
        ],
        "text": [line for found in findings for line in found.render().splitlines()],
    }
