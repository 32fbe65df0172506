"""The options of ``tenure demo`` and its exit code."""

import tempfile
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import anyio
import click
from rich.console import Console

from adapters.cli.demo.plan import DemoSize, make_plan
from adapters.cli.demo.report import describe
from adapters.cli.demo.run import DemoRun, run_demo
from adapters.cli.demo.view import LineView, LiveView, SilentView, View
from adapters.cli.engine_options import config_from, engine_options
from adapters.cli.event_log import log_option, make_way
from adapters.cli.output import write_json
from adapters.cli.plant import PLANTS, plant

__all__ = ["demo", "pages_for", "rows_for"]

ROWS = 16
SLOTS = 26
PAGES = 96
"""Too few of each: sessions outnumber slots, and running turns outgrow the pages."""


@click.command()
@click.option("--sessions", type=click.IntRange(min=0), default=48, show_default=True)
@click.option("--turns", type=click.IntRange(min=1), default=4, show_default=True)
@click.option("--one-shots", type=click.IntRange(min=0), default=48, show_default=True)
@click.option("--max-tokens", type=click.IntRange(min=2), default=64, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True, help="What the clients do, when.")
@click.option(
    "--pace",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    help="Factor on pauses.",
)
@click.option(
    "--limit-s",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="Seconds at most.",
)
@log_option
@click.option("--plant", "bug", type=click.Choice(PLANTS), help="Put a known bug in.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@engine_options
def demo(
    sessions: int,
    turns: int,
    one_shots: int,
    max_tokens: int,
    seed: int,
    pace: float,
    limit_s: float,
    log: Path | None,
    bug: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Serve dozens of clients on a pool that is too small for them, and prove that nothing leaked.

    Sessions of several turns and one-shots stream at once; some cancel, disconnect, interrupt or
    close at random moments. At the end the event log is replayed. The exit code is 1 when a slot
    or a page leaked, came back twice or was shared by mistake, or a client got an error.
    """
    slots = options["num_slots"] = options["num_slots"] or SLOTS
    options["num_pages"] = options["num_pages"] or pages_for(slots)
    config = config_from(options, seed=seed, max_num_seqs=rows_for(slots))
    size = DemoSize(
        sessions=sessions, turns=turns, one_shots=one_shots, max_tokens=max_tokens, pace=pace
    )
    plan = make_plan(size, seed)
    view = _view(as_json)

    async def main(path: Path) -> DemoRun:
        return await run_demo(config, plan, log=path, view=view, limit_s=limit_s)

    with _log_path(log) as path, nullcontext() if bug is None else plant(bug):
        run = anyio.run(main, path)
    if as_json:
        write_json(run.report)
    else:
        for line in describe(run.report, run.audit):
            click.echo(line)
    for error in run.tally.errors[:5]:
        click.echo(f"client error: {error}", err=True)
    if run.tally.errors or not run.report.conserved:
        raise click.exceptions.Exit(1)


def rows_for(slots: int) -> int:
    """Turns that may run at once: few by default, more where there is a slot for everybody."""
    return ROWS if slots <= SLOTS else min(64, slots)


def pages_for(slots: int) -> int | None:
    """Pages of the pool: too few by default; the engine's own number where slots suffice."""
    return PAGES if slots <= SLOTS else None


def _view(as_json: bool) -> View:
    if as_json:
        return SilentView()
    console = Console()
    return LiveView(console) if console.is_terminal else LineView(click.echo)


@contextmanager
def _log_path(given: Path | None) -> Generator[Path]:
    """The log to write: the one that was asked for, or one that goes away with the run."""
    if given is not None:
        make_way(given)
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="tenure-demo-") as folder:
        yield Path(folder) / "events.jsonl"
