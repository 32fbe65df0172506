"""``tenure trace``: what an event log proves, and a drawing of it."""

from pathlib import Path

import attrs
import click

from adapters.cli.output import write_json
from adapters.trace_audit import EngineAudit, TraceAudit, audit_file
from adapters.trace_view import draw_file, make_page

__all__ = ["trace"]

MAX_PROBLEMS_SHOWN = 20


@click.group()
def trace() -> None:
    """Read the event log of an engine."""


@trace.command("audit")
@click.argument("log", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def audit(log: Path, as_json: bool) -> None:
    """Replay LOG, a file of JSON lines, and say whether every claim was conserved.

    The replay shares no code with the ledger. The exit code is 1 when anything was leaked, given
    back twice or shared by mistake, or when the log holds no ledger's events.
    """
    result = audit_file(log)
    if as_json:
        write_json(_as_object(result))
    else:
        for line in _as_lines(result):
            click.echo(line)
    if not result.conserved:
        raise click.exceptions.Exit(1)


@trace.command("view")
@click.argument("log", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The HTML file to write.",
)
def view(log: Path, output: Path) -> None:
    """Draw LOG: which slot was whose, and when.

    One HTML file, which loads nothing and can be mailed. The exit code is 1 when the log holds no
    ledger's events.
    """
    pictures = draw_file(log)
    output.write_text(make_page(log.name, pictures), encoding="utf-8")
    for picture in pictures:
        events, claims = len(picture.at), len(picture.claims)
        click.echo(f"{picture.engine}: {events} events, {claims} claims, {picture.slots} slots")
    click.echo(f"wrote {output}")
    if not pictures:
        click.echo("no ledger's events in it; was log_events on?", err=True)
        raise click.exceptions.Exit(1)


def _as_object(result: TraceAudit) -> dict[str, object]:
    return {
        "conserved": result.conserved,
        "leaked": result.leaked,
        "double_frees": result.double_frees,
        "reclaimed": result.reclaimed,
        "quarantined": result.quarantined,
        "still_owned": result.still_owned,
        "lines": result.lines,
        "skipped_lines": result.skipped_lines,
        "engines": [
            {**attrs.asdict(engine), "conserved": engine.conserved} for engine in result.engines
        ],
    }


def _as_lines(result: TraceAudit) -> list[str]:
    lines = [line for engine in result.engines for line in _engine_lines(engine)]
    if not result.engines:
        lines.append(f"no ledger's events in {result.lines} lines; was log_events on?")
    if result.skipped_lines:
        lines.append(
            f"{result.skipped_lines} of {result.lines} lines are no events and were passed"
        )
    lines.append("conserved" if result.conserved else "NOT CONSERVED")
    return lines


def _engine_lines(engine: EngineAudit) -> list[str]:
    shown = {
        "reserved": "claim.reserved",
        "committed": "claim.committed",
        "rolled back": "claim.rolled_back",
        "closed": "claim.closed",
        "steps": "lease.launched",
    }
    counts = ", ".join(f"{engine.counts.get(key, 0)} {name}" for name, key in shown.items())
    found = (
        f"{engine.leaked} leaked, {engine.double_frees} double frees, "
        f"{engine.reclaimed} reclaimed, {engine.quarantined} in quarantine"
    )
    left = (
        f"at the end {engine.still_owned} claims owned, "
        f"{engine.free_slots} slots and {engine.free_pages} pages free"
    )
    if engine.host_free_slots or engine.host_free_pages:
        left += f", {engine.host_free_slots} and {engine.host_free_pages} in host memory"
    lines = [f"{engine.engine or 'engine'}: {counts}", f"  {found}", f"  {left}"]
    if not engine.closed:
        lines.append("  its engine was still open where the log ends")
    lines.extend(f"  {problem}" for problem in engine.problems[:MAX_PROBLEMS_SHOWN])
    if engine.num_problems > MAX_PROBLEMS_SHOWN:
        lines.append(f"  and {engine.num_problems - MAX_PROBLEMS_SHOWN} more")
    return lines
