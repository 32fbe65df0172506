"""How the demo looks while it runs: a live picture on a terminal, plain lines elsewhere."""

from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

import attrs
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from adapters.cli.demo.board import Board, Cell
from adapters.cli.demo.tally import Tally, median_ms
from kernel import EngineStats

__all__ = ["LineView", "LiveView", "Moment", "SilentView", "View", "picture"]

STYLES = {
    "batch": "green",
    "session": "cyan",
    "cache": "blue",
    "draining": "magenta",
    "quarantined": "bold red",
    "free": "bright_black",
}
CELL_WIDTH = 11


@attrs.frozen(kw_only=True)
class Moment:
    """What a view shows."""

    board: Board
    tally: Tally
    stats: EngineStats
    elapsed_s: float

    @property
    def tokens_per_s(self) -> float:
        return self.tally.tokens / self.elapsed_s if self.elapsed_s > 0 else 0.0


class View(Protocol):
    """Shows moments of a run."""

    interval_s: float

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

    def show(self, moment: Moment, /) -> None: ...


class SilentView:
    """Shows nothing; standard output belongs to the JSON object."""

    interval_s = 0.5

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        """Nothing was opened."""

    def show(self, moment: Moment, /) -> None:
        """Show nothing."""


class LineView(SilentView):
    """One line every two seconds, for logs and pipes.

    Args:
        write: takes each line.
    """

    interval_s = 2.0

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write

    def show(self, moment: Moment, /) -> None:
        """Write a line."""
        figures = "  ".join(_figures(moment))
        self._write(f"{moment.elapsed_s:5.1f} s  {figures}  slots {_owners(moment)}")


class LiveView:
    """A picture that is drawn over itself, a few times a second.

    Args:
        console: a terminal.
    """

    interval_s = 0.2

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False, transient=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        self._live.stop()

    def show(self, moment: Moment, /) -> None:
        """Draw the moment."""
        self._live.update(picture(moment, width=self._live.console.width), refresh=True)


def picture(moment: Moment, *, width: int) -> RenderableType:
    """The whole display."""
    return Group(
        Panel(Text("\n".join(_figures(moment))), title=f"tenure demo  {moment.elapsed_s:.1f} s"),
        Panel(
            _slots(moment.board, width),
            title=f"who owns which slot  ({_owners(moment)}; * on the device)",
        ),
        Panel(_texts(moment.tally, width), title="what they were told"),
    )


def _slots(board: Board, width: int) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    columns = max(1, (width - 4) // (CELL_WIDTH + 1))
    cells = [_cell(slot, cell) for slot, cell in board.in_order()]
    for start in range(0, len(cells), columns):
        grid.add_row(*cells[start : start + columns])
    return grid


def _cell(slot: int, cell: Cell) -> Text:
    mark = "*" if cell.in_flight else " "
    label = cell.label.removeprefix("session:").removeprefix("turn:") or "."
    text = f"{slot:>2}{mark}{label}"[:CELL_WIDTH].ljust(CELL_WIDTH)
    return Text(text, style=STYLES.get(cell.owner, ""))


def _texts(tally: Tally, width: int) -> Text:
    lines = [f"{name}: {_plain(text)}"[: width - 6] for name, text in tally.texts]
    return Text("\n".join(lines) or "...")


def _plain(text: str) -> str:
    """One line without control characters: a model may say anything, and a terminal obeys."""
    return "".join(char if char.isprintable() else "·" for char in " ".join(text.split()))


def _figures(moment: Moment) -> tuple[str, str]:
    """What goes on, and what had to be done for it."""
    tally, stats = moment.tally, moment.stats
    first, later = _ms(median_ms(tally.ttft_first_s)), _ms(median_ms(tally.ttft_later_s))
    running, waiting = stats.num_requests_running, stats.num_requests_waiting
    flow = f"{tally.tokens} tokens  {moment.tokens_per_s:.0f}/s  {running} run, {waiting} wait"
    price = (
        f"first token {first} / {later} later  {stats.rollbacks} rollbacks  "
        f"{stats.preemptions} preempted  {stats.forced_parks} parked"
    )
    return flow, price


def _owners(moment: Moment) -> str:
    board = moment.board
    told = _shares(board.owned, board.num_slots)
    if board.num_host_slots:
        told += f"; in host memory {_shares(board.owned_in_host, board.num_host_slots)}"
    return told


def _shares(owned: dict[str, int], slots: int) -> str:
    parts = [f"{name} {count}" for name, count in owned.items() if count]
    return ", ".join([*parts, f"free {slots - sum(owned.values())}"])


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} ms"
