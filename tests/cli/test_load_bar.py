"""The bar of a loading: on a terminal, for a large model, and gone when it is over."""

import io
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress

from adapters.cli.load_bar import load_bar
from kernel import LoadProgress

LARGE = 1 << 30


def drawn(*done: int, total: int = LARGE, shown: bool = True, terminal: bool = True) -> str:
    """What a console got to see of a loading."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=80, force_interactive=terminal)
    with load_bar(shown, console) as tell:
        for now in done:
            tell(LoadProgress(now, total, "a"))
        tell(LoadProgress(total, total, ""))
        seen = out.getvalue()
        with Progress(console=console):
            pass  # the bar isn't in the way of another: a console has room for one
    return seen


def test_a_large_model_has_a_bar_on_a_terminal() -> None:
    assert "loading" in drawn(0, LARGE // 2)
    assert "1.0" in drawn(0, LARGE // 2)


@pytest.mark.parametrize(
    "how", [{"shown": False}, {"terminal": False}, {"total": 1 << 20}], ids=str
)
def test_nothing_is_drawn_unasked(how: dict[str, Any]) -> None:
    """Not into a file, not when told not to, and not for the blink of a small model."""
    assert drawn(0, 1 << 19, **how) == ""


def test_the_bar_is_gone_when_the_loading_fails() -> None:
    """The error that follows begins on a line of its own."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80)
    with pytest.raises(ValueError, match="damaged"), load_bar(True, console) as tell:
        tell(LoadProgress(5, LARGE, "a"))
        raise ValueError("damaged")
    assert out.getvalue().endswith(("\x1b[?25h", "\x1b[2K"))
