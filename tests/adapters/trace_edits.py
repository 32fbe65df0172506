"""Single edits of real logs; the audit must name whose event was edited, and nobody else.

``python -m tests.adapters.trace_edits --edits 1000 --json``

An edit removes one event, changes one field of it to another value that could stand there, doubles
it, or moves it. Nothing is made that leaves the log with the meaning it had: the last line is not
removed (a log may end earlier), and a change changes the value. Moving an event past its neighbour
is the same edit as moving the neighbour: either name is right.
"""

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, cast

import attrs

from adapters.trace_audit import audit_lines
from adapters.trace_audit.seal import COVERED
from tests.adapters.trace_logs import engine_log, ledger_log

__all__ = ["Drafts", "Edit", "Outcome", "judge", "run_edits", "source_logs"]

Kind = Literal["removed", "changed", "doubled", "moved"]
KINDS: tuple[Kind, ...] = ("removed", "changed", "doubled", "moved")
Fields = dict[str, Any]


@attrs.frozen
class Edit:
    """One edit, with the log that it leaves."""

    kind: Kind
    line: int
    what: str
    about: frozenset[str]
    """What the edited event is about; two where two readings of the edit are the same log."""
    lines: Sequence[str] = attrs.field(repr=False)


@attrs.define(eq=False)
class Outcome:
    """How many edits were named."""

    edits: int = 0
    found: int = 0
    """Edits of which the audit has any finding at all."""
    named: int = 0
    """Edits whose claim is what the first finding names."""
    kinds: Counter[str] = attrs.field(factory=Counter[str])
    missed: list[str] = attrs.field(factory=list[str])


def source_logs(count: int, first: int = 0) -> list[list[str]]:
    """Logs of engines and of bare ledgers, by turns."""
    return [
        engine_log(seed) if seed % 2 else ledger_log(seed) for seed in range(first, first + count)
    ]


def judge(edit: Edit) -> str | None:
    """What the audit's first finding names; None when it found nothing."""
    problems = [found for engine in audit_lines(edit.lines).engines for found in engine.problems]
    return problems[0].about if problems else None


def unsealed(lines: list[str]) -> list[str]:
    """The ledger's events of a log as a bare observer would write them."""
    events: list[Fields] = [json.loads(line) for line in lines]
    return [
        json.dumps({field: event[field] for field in event if field not in {"after", "check"}})
        for event in events
        if "seq" in event
    ]


def run_edits(
    edits: int,
    seed: int = 0,
    logs: int = 20,
    *,
    sealed: bool = True,
    progress: bool = False,
) -> Outcome:
    """Draw and judge so many edits, spread over so many logs."""
    rng = random.Random(seed)
    sources = [lines if sealed else unsealed(lines) for lines in source_logs(logs)]
    drafts = [Drafts(lines, rng) for lines in sources]
    outcome = Outcome()
    for number in range(edits):
        edit = drafts[number % logs].draw()
        named = judge(edit)
        outcome.edits += 1
        outcome.kinds[edit.kind] += 1
        outcome.found += named is not None
        if named in edit.about:
            outcome.named += 1
        else:
            wanted = " or ".join(sorted(edit.about))
            outcome.missed.append(
                f"{edit.kind} line {edit.line} ({edit.what}): {named}, not {wanted}"
            )
        if progress and outcome.edits % 500 == 0:
            sys.stderr.write(f"{outcome.edits} edits, {outcome.named} named\n")
    return outcome


def about(event: Fields) -> str:
    """Whose event it is."""
    for kind in ("claim", "lease", "turn", "actor"):
        if kind in event:
            return f"{kind} {event[kind]}"
    return str(event["event"]).split(".", maxsplit=1)[0]


class Drafts:
    """Makes edits of one log."""

    def __init__(self, lines: list[str], rng: random.Random) -> None:
        self.lines = lines
        self.rng = rng
        self.events: list[Fields] = [json.loads(line) for line in lines]
        self.seen: dict[str, list[Any]] = {}
        for event in self.events:
            for field, value in event.items():
                values = self.seen.setdefault(field, [])
                if value not in values:
                    values.append(value)

    def draw(self) -> Edit:
        kind = self.rng.choice(KINDS)
        return {
            "removed": self.removed,
            "changed": self.changed,
            "doubled": self.doubled,
            "moved": self.moved,
        }[kind]()

    def removed(self) -> Edit:
        line = self.rng.randrange(len(self.lines) - 1)
        rest = [*self.lines[:line], *self.lines[line + 1 :]]
        return self._edit("removed", line, self._name(line), rest)

    def doubled(self) -> Edit:
        line = self.rng.randrange(len(self.lines))
        place = self.rng.choice([line + 1, self.rng.randint(0, len(self.lines))])
        lines = [*self.lines[:place], self.lines[line], *self.lines[place:]]
        return self._edit("doubled", line, f"{self._name(line)} at {place}", lines)

    def moved(self) -> Edit:
        line = self.rng.randrange(len(self.lines) - 1)
        rest = [*self.lines[:line], *self.lines[line + 1 :]]
        near = [line - 1, line + 1, line + 2]
        place = self.rng.choice([*near, self.rng.randint(0, len(rest))])
        if place == line or not 0 <= place <= len(rest):
            return self.moved()
        lines = [*rest[:place], self.lines[line], *rest[place:]]
        also = [place] if abs(place - line) == 1 else []
        return self._edit("moved", line, f"{self._name(line)} to {place}", lines, also)

    def changed(self) -> Edit:
        line = self.rng.randrange(len(self.lines))
        event = dict(self.events[line])
        covered = COVERED[event["event"]] | {"event", "check"}
        field = self.rng.choice([field for field in event if field in covered])
        before = event[field]
        event[field] = self._other(field, before)
        what = f"{self._name(line)}.{field}: {before} -> {event[field]}"
        lines = [*self.lines]
        lines[line] = json.dumps(event, separators=(",", ":"))
        return self._edit("changed", line, what, lines)

    def _other(self, field: str, value: Any) -> Any:
        """Another value that the field could have."""
        known = [each for each in self.seen[field] if each != value]
        if known and self.rng.random() < 0.5:
            return self.rng.choice(known)
        match type(value).__name__:
            case "bool":
                return not value
            case "int":
                return value + self.rng.choice([1, -1, 7])
            case "float":
                return round(value + self.rng.choice([-0.001, 0.001, 1]), 6)
            case "list":
                return self._other_list(value)
            case "NoneType":
                return self.rng.choice(known) if known else 0
            case _:
                return self.rng.choice(known) if known else f"{value}x"

    def _other_list(self, items: list[Any]) -> list[Any]:
        if not items:
            return [self.rng.randrange(4)]
        at = self.rng.randrange(len(items))
        item = items[at]
        if isinstance(item, dict):
            row = dict(cast("Fields", item))
            field = self.rng.choice(list(row))
            row[field] = [0] if row[field] == [] else self._changed_number(row[field])
            return [*items[:at], row, *items[at + 1 :]]
        if self.rng.random() < 0.3:
            return [*items[:at], *items[at + 1 :]]
        return [*items[:at], self._changed_number(item), *items[at + 1 :]]

    def _changed_number(self, value: Any) -> Any:
        if isinstance(value, int):
            return value + 1
        return [] if isinstance(value, list) else 0 if value is None else f"{value}x"

    def _name(self, line: int) -> str:
        return str(self.events[line]["event"])

    def _edit(
        self, kind: Kind, line: int, what: str, lines: list[str], also: Sequence[int] = ()
    ) -> Edit:
        whose = frozenset(about(self.events[each]) for each in (line, *also))
        return Edit(kind, line, what, whose, lines)


def main() -> int:
    """Print how many of the edits were named; exit with 1 when one was not."""
    parser = argparse.ArgumentParser(prog="python -m tests.adapters.trace_edits")
    parser.add_argument("--edits", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--logs", type=int, default=20)
    parser.add_argument(
        "--unsealed", action="store_true", help="how far the audit gets without the events' seals"
    )
    parser.add_argument("--json", action="store_true", dest="as_json")
    options = parser.parse_args()
    start = time.perf_counter()
    outcome = run_edits(
        options.edits, options.seed, options.logs, sealed=not options.unsealed, progress=True
    )
    seconds = round(time.perf_counter() - start, 1)
    if options.as_json:
        figures = {**attrs.asdict(outcome), "failed": len(outcome.missed), "seconds": seconds}
        sys.stdout.write(json.dumps(figures) + "\n")
    else:
        report = [*outcome.missed, f"{outcome.named} of {outcome.edits} edits named in {seconds} s"]
        sys.stdout.write("\n".join(report) + "\n")
    return 1 if outcome.missed and not options.unsealed else 0


if __name__ == "__main__":
    sys.exit(main())
