"""Draws how soon a turn has its first token, by history and tier, as an SVG."""

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import click

__all__ = ["check_plot", "draw"]

_STYLES = {
    "device": ("device", "#1b7837", "-", "o"),
    "host": ("host memory", "#2166ac", "-", "s"),
    "disk": ("disk", "#e08214", "-", "^"),
    "log": ("log only", "#762a83", "-", "v"),
    "reprefill": ("prefill anew", "#999999", "--", "x"),
}


def check_plot(path: Path) -> None:
    """Look whether a plot could be drawn, before minutes are spent on what is to be in it.

    Raises:
        click.UsageError: matplotlib isn't installed.
        click.BadParameter: there is no directory for the file, or none that can be written.
    """
    if find_spec("matplotlib") is None:
        raise click.UsageError("--plot needs matplotlib: pip install 'tenure[plots]'")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        why = f"no file can be written in {str(path.parent)!r}; give another path"
        raise click.BadParameter(why, param_hint="--plot")


def draw(figures: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Write one SVG with a part for each model; the same figures give the same bytes.

    Args:
        figures: by model, what ``tenure bench sessions`` says in ``resume_ms`` and
            ``reprefill_ms``.
        path: the file, which :func:`check_plot` was asked about.
    """
    import matplotlib as mpl  # noqa: PLC0415 - for drawing only, and not for all
    from matplotlib.figure import Figure  # noqa: PLC0415

    mpl.rcParams.update({"svg.hashsalt": "tenure", "svg.fonttype": "none"})
    figure: Any = Figure(figsize=(4.6 * len(figures), 3.6), layout="constrained")
    parts = figure.subplots(1, len(figures), sharey=True, squeeze=False)
    for part, (model, found) in zip(parts[0], figures.items(), strict=True):
        _draw_part(part, model, found)
    parts[0][0].set_ylabel("first token after, ms")
    parts[0][0].legend(frameon=False, fontsize="small")
    figure.savefig(path, metadata={"Date": None, "Creator": None})


def _draw_part(part: Any, model: str, found: Mapping[str, Any]) -> None:
    lines = {**found["resume_ms"], "reprefill": found["reprefill_ms"]}
    for name, (label, colour, dashes, marker) in _STYLES.items():
        points = cast("Mapping[str, float]", lines[name])
        part.plot(
            [int(history) for history in points],
            list(points.values()),
            color=colour,
            linestyle=dashes,
            marker=marker,
            markersize=5,
            label=label,
        )
    part.set(xscale="log", yscale="log", title=model, xlabel="tokens of history")
    part.grid(visible=True, which="major", alpha=0.3)
