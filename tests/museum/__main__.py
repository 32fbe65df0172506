"""``python -m tests.museum``: run every scenario; ``--check`` plants each one's bug as well."""

import argparse
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import click

from tests.museum.checking import Checked, check
from tests.museum.entries import ENTRIES
from tests.museum.page import PAGE, render
from tests.museum.register import Place, places
from tests.museum.running import Outcome, run_tests
from tests.mutants.mutant import ROOT


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, and say how it went; 0 when every scenario passed (and every bug was caught)."""
    options = _parse(arguments)
    if options.write:
        PAGE.write_text(render(places()), encoding="utf-8")
        click.echo(f"wrote {PAGE.relative_to(ROOT)}", err=True)
        return 0
    chosen = places(options.only)
    shown = [place.scenario for place in chosen if place.scenario is not None]
    outcomes = run_tests(ROOT, [scenario.node for scenario in shown]) if shown else {}
    checked = check(shown, say=partial(click.echo, err=True)) if options.check else []
    entries = _entries(chosen, outcomes, checked)
    counts = _counts(entries)
    caught = sum(result.caught for result in checked)
    if options.check:
        counts |= {"checked": len(checked), "caught": caught}
    if options.json:
        click.echo(json.dumps({**counts, "entries": entries}, indent=2))
    else:
        click.echo(_summary(counts, entries))
    if options.check:
        click.echo(f"caught {caught} of {len(checked)}", err=options.json)
    return int(counts["failed"] > 0 or caught < len(checked))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.museum", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--check", action="store_true", help="plant each scenario's bug as well")
    parser.add_argument("--only", nargs="+", metavar="M001", default=[], help="these entries")
    parser.add_argument("--write", action="store_true", help="write docs/museum.md and stop")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.only if name not in ENTRIES]:
        parser.error(f"no entry {', '.join(unknown)}")
    return options


def _entries(
    chosen: Sequence[Place], outcomes: Mapping[str, Outcome], checked: Sequence[Checked]
) -> list[dict[str, Any]]:
    by_id = {result.scenario.exhibit.id: result for result in checked}
    return [_entry(place, outcomes, by_id) for place in chosen]


def _counts(entries: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    count = Counter(entry["status"] for entry in entries)
    counts = {name: count[name] for name in ("passed", "failed", "not_applicable", "pending")}
    return {"total": len(entries), **counts}


def _entry(
    place: Place, outcomes: Mapping[str, Outcome], checked: Mapping[str, Checked]
) -> dict[str, Any]:
    entry: dict[str, Any] = {"id": place.entry.id, "pattern": place.pattern}
    if place.scenario is None:
        entry["status"] = place.status.replace(" ", "_")
        entry["feature" if place.status == "pending" else "reason"] = place.why
        return entry
    outcome = outcomes[place.scenario.node]
    exhibit = place.scenario.exhibit
    entry |= {
        "status": "passed" if outcome.has_passed else "failed",
        "guard": exhibit.guard,
        "bug": exhibit.bug,
        "test": place.scenario.node,
    }
    if not outcome.has_passed:
        entry["why"] = [*outcome.failures, *outcome.broken]
    result = checked.get(place.entry.id)
    if result is not None:
        entry |= {"caught": result.caught, "said": result.why}
    return entry


def _summary(counts: Mapping[str, int], entries: Sequence[Mapping[str, Any]]) -> str:
    lines: list[str] = []
    for entry in entries:
        told = entry.get("guard") or entry.get("feature") or entry.get("reason")
        lines.append(f"{entry['id']}  {entry['pattern']:<4} {entry['status']:<15} {told}")
        lines += [f"      {why}" for why in entry.get("why", ())]
        if not entry.get("caught", True):
            lines.append(f"      not caught: {entry['bug']}: {entry['said']}")
    lines.append("  ".join(f"{name} {count}" for name, count in counts.items()))
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
