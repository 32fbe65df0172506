"""``tenure bench sessions``: many sessions on one engine, and how soon each goes on."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import click

from adapters.cli.bench.resume_plot import check_plot, draw
from adapters.cli.bench.small_states import SMALL_MODELS
from adapters.cli.bench.table import tables
from adapters.cli.output import error_console, write_json
from kernel.session_store import SyncPolicy

__all__ = ["sessions"]

PARTS: Final = ("scale", "resume")
MOST_TOKENS: Final = 120_000
"""What the models of the resume part hold, less the turns that are measured."""


@attrs.frozen
class _Sizes:
    sessions: int
    histories: tuple[int, ...]
    turns: int
    runs: int


FULL: Final = _Sizes(100_000, (1_000, 10_000, 100_000), turns=500, runs=15)
QUICK: Final = _Sizes(1_000, (100, 1_000), turns=100, runs=3)


def _numbers(_context: object, _parameter: object, text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise click.BadParameter("give numbers of tokens, like 1000,10000") from error
    if min(found) < 1 or max(found) > MOST_TOKENS:
        raise click.BadParameter(f"a history has 1 to {MOST_TOKENS} tokens")
    return found


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--quick", is_flag=True, help="Small sizes: half a minute instead of many.")
@click.option("--only", type=click.Choice(PARTS), help="One part only.")
@click.option("--sessions", "count", type=click.IntRange(min=100), help="Most sessions.")
@click.option("--histories", callback=_numbers, help="Tokens of history, like 1000,10000.")
@click.option("--turns", type=click.IntRange(min=20), help="Turns measured for each size.")
@click.option("--runs", type=click.IntRange(min=1), help="Most runs for each tier and history.")
@click.option(
    "--model",
    type=click.Choice(sorted(SMALL_MODELS)),
    default="fake",
    show_default=True,
    help="Whose sessions are counted; a state has at most 256 bytes.",
)
@click.option(
    "--sync",
    type=click.Choice(["full", "normal", "off"]),
    default="full",
    show_default=True,
    help="When the stores of the scale part sync, as in EngineConfig.",
)
@click.option(
    "--directory",
    type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
    help="On the disk to measure.  [default: the system's for temporary files]",
)
@click.option(
    "--plot", type=click.Path(dir_okay=False, path_type=Path), help="An SVG of the resume part."
)
def sessions(
    *,
    as_json: bool,
    quick: bool,
    only: str | None,
    count: int | None,
    histories: tuple[int, ...] | None,
    turns: int | None,
    runs: int | None,
    model: str,
    sync: SyncPolicy,
    directory: Path | None,
    plot: Path | None,
) -> None:
    """Measure sessions in numbers, and how soon a turn goes on from each place of its state.

    A hundred thousand sessions on one engine take ten minutes or so, a hundred thousand tokens of
    history as long. The machine should be idle: times are wall-clock times.
    """
    if plot is not None:
        if only == "scale":
            raise click.UsageError("--plot draws the resume part; leave out --only scale")
        check_plot(plot)
    preset = QUICK if quick else FULL
    console = error_console()

    def tell(what: str) -> None:
        console.print(what, highlight=False)

    scaled: dict[str, Any] = {}
    resumed: dict[str, dict[str, Any]] = {}
    if only != "resume":
        from adapters.cli.bench.scale import scale  # noqa: PLC0415 - one part needs no torch

        scaled = scale(
            count or preset.sessions,
            model=model,
            sync=sync,
            turns=turns or preset.turns,
            directory=directory,
            tell=tell,
        )
    if only != "scale":
        sizes = histories or preset.histories
        resumed = _resume(
            sizes, runs=runs or preset.runs, directory=directory, plot=plot, tell=tell
        )
    if as_json:
        # The hybrid model's figures under the names that they have, the other's under its own.
        hybrid = resumed.pop("hybrid", {})
        write_json({**scaled, **hybrid, **resumed})
        return
    for line in _lines(scaled, resumed):
        click.echo(line)


def _lines(scaled: dict[str, Any], resumed: dict[str, dict[str, Any]]) -> Iterator[str]:
    if scaled:
        yield "many sessions on one engine"
        yield from tables(scaled, "by number of sessions")
    for model, figures in resumed.items():
        yield from ["", ""] if scaled or model != "hybrid" else []
        yield f"a turn's first token, {model} model"
        yield from tables(figures, "by tokens of history")


def _resume(
    histories: tuple[int, ...],
    *,
    runs: int,
    directory: Path | None,
    plot: Path | None,
    tell: Callable[[str], object],
) -> dict[str, dict[str, Any]]:
    """How soon a turn goes on, by model."""
    from adapters.cli.bench.resume import resume_ms  # noqa: PLC0415 - it needs torch

    found = {
        model: resume_ms(histories, model=model, runs=runs, directory=directory, tell=tell)
        for model in ("hybrid", "recurrent")
    }
    if plot is not None:
        draw(found, plot)
    return found
