"""What the demo shows: a picture on a terminal, lines elsewhere, nothing beside a JSON object."""

from io import StringIO

import attrs
import pytest
from rich.console import Console

from adapters.cli.demo.board import Board
from adapters.cli.demo.tally import Tally, median_ms
from adapters.cli.demo.view import LineView, LiveView, Moment, SilentView, picture
from kernel import EngineStats
from tests.cli.log_writer import LogWriter


def moment() -> Moment:
    log = LogWriter()
    log.reserve(0, 1)
    log.reserve(1, 2)
    log.step(0, 1, 3)
    log.commit(1, 2, 3)
    board = Board()
    for event, fields in log.events():
        board.watch(event, fields)
    tally = Tally(tokens=50)
    tally.saw_first_token(0.012, turn=0)
    tally.saw_first_token(0.004, turn=2)
    tally.texts.append(("s01", "Once upon\na time\x1b[2J"))
    stats = EngineStats(rollbacks=3, preemptions=2, forced_parks=1)
    return Moment(board=board, tally=tally, stats=stats, elapsed_s=2.0)


def test_the_picture_names_owners_figures_and_text() -> None:
    """Who owns which slot, tokens per second, first tokens, rollbacks, preemptions, parks, text."""
    console = Console(file=StringIO(), width=100, record=True)
    console.print(picture(moment(), width=100))
    text = console.export_text()

    for part in (
        "1 turn-0",
        "2 session",
        "batch 1, session 1, free 2",
        "50 tokens  25/s",
        "12 ms / 4 ms later",
        "3 rollbacks  2 preempted  1 parked",
        "s01: Once upon a time·[2J",
    ):
        assert part in text, part


def test_states_in_host_memory_are_not_counted_as_slots_of_the_device() -> None:
    """They are numbered after these; counted with them, more were owned than there are."""
    log = LogWriter()
    log.write("ledger.opened", slots=2, pages=8, page_size=4, host_slots=3, host_pages=8)
    for claim in range(4):
        log.reserve(claim, claim)
    board = Board()
    for event, fields in log.events():
        board.watch(event, fields)
    lines: list[str] = []
    with LineView(lines.append) as view:
        view.show(attrs.evolve(moment(), board=board))

    assert lines[0].endswith("slots batch 2, free 0; in host memory batch 2, free 1")


def test_lines_are_plain() -> None:
    """A log file or a pipe gets text without control characters."""
    lines: list[str] = []
    with LineView(lines.append) as view:
        view.show(moment())

    (line,) = lines

    assert line.startswith("  2.0 s  50 tokens")
    assert "\x1b" not in line


def test_the_live_view_draws_over_itself() -> None:
    """It ends with the last moment on the screen."""
    file = StringIO()
    with LiveView(Console(file=file, width=100, force_terminal=True)) as view:
        view.show(moment())
        view.show(moment())

    assert "who owns which slot" in file.getvalue()


def test_the_silent_view_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Standard output belongs to the JSON object."""
    with SilentView() as view:
        view.show(moment())

    assert capsys.readouterr() == ("", "")


def test_the_median_of_nothing_is_none() -> None:
    """Zero would be a measurement that nobody made."""
    assert median_ms([]) is None
    assert median_ms([0.001, 0.002, 0.004]) == 2.0
