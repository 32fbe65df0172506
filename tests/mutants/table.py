"""The table of ``docs/protocol.md``: what each planted bug breaks, and what catches it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from tests.mutants.catalogue import system_mutants
from tests.mutants.ladder import Verdict
from tests.mutants.mutant import ROOT, Mutant
from tests.mutants.rules import RULES

__all__ = ["BEGIN", "END", "PAGE", "by_layer", "write"]

PAGE: Final = ROOT / "docs" / "protocol.md"
BEGIN: Final = "<!-- written by `python -m tests.mutants --write` -->"
END: Final = "<!-- end of the table -->"


def by_layer(verdicts: Iterable[Verdict]) -> dict[str, int]:
    """How many mutants each layer was the first to catch."""
    return dict(Counter(verdict.caught_by[0] for verdict in verdicts if verdict.caught_by))


def write(verdicts: Mapping[str, Verdict], page: Path = PAGE) -> None:
    """Replace what stands between the markers; rows of mutants that did not run are kept.

    Exhibits' mutants are not shown: the museum checks them itself.
    """
    text = page.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    old, _, tail = rest.partition(END)
    rows = dict(_old_rows(old)) | {
        name: _row(mutant, verdicts[name])
        for name, mutant in system_mutants().items()
        if name in verdicts
    }
    lines = [
        "| mutant | what it breaks | rule | caught by | trace |",
        "|---|---|---|---|---|",
        *(rows[name] for name in system_mutants() if name in rows),
    ]
    page.write_text(f"{head}{BEGIN}\n\n{chr(10).join(lines)}\n\n{END}{tail}", encoding="utf-8")


def _old_rows(table: str) -> Iterable[tuple[str, str]]:
    for line in table.splitlines():
        if line.startswith("| `"):
            yield line.split("`")[1], line


def _row(mutant: Mutant, verdict: Verdict) -> str:
    mark = "◆ " if mutant.rule in RULES else ""
    caught = ", ".join(verdict.caught_by) or "**nothing**"
    length = "" if verdict.trace_length is None else str(verdict.trace_length)
    return f"| `{mutant.id}` | {mutant.breaks} | {mark}{mutant.rule} | {caught} | {length} |"
