"""Looks at the drawn page in a real browser: ``python -m tests.adapters.trace_browser --json``.

It needs a Chromium or a Chrome and nothing else. The page of a real log must draw, for every slot
and event, the colour of the owner that a replay of that log says; answer keys, mouse, filter and
legend; write nothing to the console and ask nothing of the network.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from adapters.trace_view import draw_lines, make_page
from tests.adapters.chromium import Tab, find_browser, open_tab
from tests.adapters.trace_logs import engine_log, ledger_log, long_log
from tests.adapters.trace_owners import owners_by_event

FRAME_MS = 200.0
"""What drawing a hundred thousand events may take at most, on a slow machine without a GPU."""


@attrs.define(eq=False)
class Looks:
    """What was looked at, and what was wrong with it."""

    checks: int = 0
    problems: list[str] = attrs.field(factory=list[str])
    figures: dict[str, float] = attrs.field(factory=dict[str, float])

    def that(self, what: str, *, holds: bool, told: object = "") -> None:
        self.checks += 1
        if not holds:
            self.problems.append(f"{what}: {told}")


def look(tab: Tab, folder: Path, pictures: Path | None) -> Looks:
    """All checks."""
    looks = Looks()
    two = [*engine_log(7, 160), *ledger_log(2, 300)]
    for dark in (False, True):
        _show(tab, folder, "two", two, dark=dark)
        _owners_are_drawn(tab, looks, two)
        _picture(tab, pictures, f"two-{'dark' if dark else 'light'}.png")
    _show(tab, folder, "two", two)
    for check in (_keys, _mouse, _filter, _legend, _axis_and_zoom, _table):
        check(tab, looks)
    _picture(tab, pictures, "two-used.png")
    broken = [line for n, line in enumerate(two) if n != 40]
    _show(tab, folder, "broken", broken)
    verdict = tab.value("document.getElementById('verdict').textContent")
    looks.that("a damaged log is called so", holds="not conserved" in verdict, told=verdict)
    _long(tab, looks, folder, pictures)
    _show(tab, folder, "empty", [])
    looks.that("nothing on the console", holds=not tab.complaints, told=tab.complaints)
    return looks


def _show(tab: Tab, folder: Path, name: str, lines: list[str], *, dark: bool = False) -> None:
    page = folder / f"{name}.html"
    page.write_text(make_page(f"{name}.jsonl", draw_lines(lines)), encoding="utf-8")
    tab.resize(1360, 820, dark=dark)
    tab.open(page)
    _settle(tab)


def _settle(tab: Tab) -> None:
    tab.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def _picture(tab: Tab, pictures: Path | None, name: str) -> None:
    if pictures is not None:
        pictures.mkdir(parents=True, exist_ok=True)
        tab.picture(pictures / name)


def _owners_are_drawn(tab: Tab, looks: Looks, lines: list[str]) -> None:
    """By the page's own account, and by the colour of the pixel."""
    for number, owners in enumerate(owners_by_event(lines)):
        tab.value(f"tenureTrace.use({number}); tenureTrace.useAxis(false); tenureTrace.draw()")
        colours = _hex(tab.value("tenureTrace.colours()"))
        slots = len(owners[0])
        told = tab.value(
            f"[...Array({len(owners)}).keys()].map((event) => [...Array({slots}).keys()]"
            ".map((slot) => [tenureTrace.owner(slot, event), tenureTrace.colour(slot, event)]))"
        )
        for event, (row, wanted) in enumerate(zip(told, owners, strict=True)):
            for slot, ((owner, colour), right) in enumerate(zip(row, wanted, strict=True)):
                where = f"engine {number}, slot {slot}, event {event}"
                looks.that(f"owner of {where}", holds=owner == right, told=(owner, right))
                # Hatching lies over these two.
                if right not in {"draining", "quarantined"}:
                    name = "lane" if right == "free" else right
                    is_right = colour == colours[name]
                    looks.that(f"colour of {where}", holds=is_right, told=(colour, right))


def _hex(colours: dict[str, str]) -> dict[str, str]:
    return {name: colour.lower() for name, colour in colours.items()}


def _keys(tab: Tab, looks: Looks) -> None:
    tab.value("tenureTrace.use(0); document.getElementById('lanes').focus()")
    tab.press("ArrowRight")
    first = tab.value("document.querySelector('#life h2').textContent")
    label = tab.value("document.getElementById('lanes').getAttribute('aria-label')")
    tab.press("ArrowRight")
    second = tab.value("document.querySelector('#life h2').textContent")
    looks.that("the arrow keys step through spans", holds=first.startswith("Claim "), told=first)
    looks.that("the span is told to a screen reader", holds="slot 0: batch" in label, told=label)
    tab.press("ArrowDown")
    below = tab.value("document.getElementById('lanes').getAttribute('aria-label')")
    looks.that("down leads to the next slot", holds=below.startswith("slot 1"), told=below)
    rows = tab.value("document.querySelectorAll('#life tbody tr').length")
    looks.that("the life of a claim has its events", holds=rows >= 2, told=(rows, second))
    before = tab.value("tenureTrace.view()")
    tab.press("+", "+")
    after = tab.value("tenureTrace.view()")
    looks.that("plus zooms in", holds=after[1] - after[0] < before[1] - before[0], told=after)
    tab.press("0", "0")
    looks.that("0 fits all", holds=tab.value("tenureTrace.view()") == before)
    tab.press("Escape")
    gone = tab.value("document.querySelector('#life h2') === null")
    looks.that("Escape clears", holds=gone)


def _mouse(tab: Tab, looks: Looks) -> None:
    x, y, claim = tab.value(
        "(() => { tenureTrace.use(0); tenureTrace.useAxis(false); tenureTrace.draw();"
        " const box = document.getElementById('lanes').getBoundingClientRect();"
        " const span = tenureTrace.spansInView().find((each) => each[2] - each[1] > 6);"
        " const [lo, hi] = tenureTrace.view();"
        " const x = box.left + 66 + ((span[1] + span[2]) / 2 - lo) * (box.width - 74) / (hi - lo);"
        " return [x, box.top + span[0] * 30 + 15, span[4]]; })()"
    )
    tab.mouse("mouseMoved", x, y)
    tip = tab.value("document.getElementById('tip').hidden ? '' : tip.textContent")
    looks.that("hovering tells the claim", holds=f"claim {claim}" in tip, told=tip)
    for kind in ("mousePressed", "mouseReleased"):
        tab.mouse(kind, x, y, button="left", clickCount=1)
    chosen = tab.value("document.querySelector('#life h2').textContent")
    looks.that("a click chooses it", holds=chosen == f"Claim {claim}", told=chosen)
    before = tab.value("tenureTrace.view()")
    tab.mouse("mouseWheel", x, y, deltaX=0, deltaY=-300)
    after = tab.value("tenureTrace.view()")
    looks.that("the wheel zooms", holds=after[1] - after[0] < before[1] - before[0], told=after)


def _filter(tab: Tab, looks: Looks) -> None:
    tab.value("tenureTrace.use(0)")
    everything = tab.value("tenureTrace.spansInView().length")
    few = tab.value(
        "(() => { const field = document.getElementById('filter'); field.value = 's1';"
        " field.dispatchEvent(new Event('input')); return tenureTrace.spansInView().length; })()"
    )
    tab.value(
        "(() => { const field = document.getElementById('filter'); field.value = '';"
        " field.dispatchEvent(new Event('input')); })()"
    )
    looks.that("a filter leaves fewer spans", holds=0 < few < everything, told=(few, everything))


def _legend(tab: Tab, looks: Looks) -> None:
    names = tab.value("[...document.querySelectorAll('#legend > *')].map((e) => e.textContent)")
    wanted = {"batch", "session", "cache", "draining", "quarantined", "free", "reserved (padding)"}
    looks.that("the legend names every owner", holds=wanted <= set(names), told=names)
    everything = tab.value("tenureTrace.spansInView().length")
    without = tab.value(
        "(() => { const batch = document.querySelector('#legend button'); batch.click();"
        " const count = tenureTrace.spansInView().length; batch.click(); return count; })()"
    )
    looks.that("an owner can be left out", holds=without < everything, told=(without, everything))


def _axis_and_zoom(tab: Tab, looks: Looks) -> None:
    tab.value("tenureTrace.use(1)")
    for button, axis in (("by-event", "events"), ("by-time", "time")):
        tab.value(f"document.getElementById('{button}').click()")
        pressed = tab.value(f"document.getElementById('{button}').getAttribute('aria-pressed')")
        looks.that(f"the axis can be {axis}", holds=pressed == "true", told=pressed)
    before = tab.value("tenureTrace.view()")
    tab.value("document.getElementById('zoom-in').click()")
    after = tab.value("tenureTrace.view()")
    tab.value("document.getElementById('fit').click()")
    looks.that("a button zooms", holds=after[1] - after[0] < before[1] - before[0], told=after)
    looks.that("a button fits all", holds=tab.value("tenureTrace.view()") == before)


def _table(tab: Tab, looks: Looks) -> None:
    tab.value("tenureTrace.use(0); document.getElementById('table-part').open = true")
    tab.value("new Promise((done) => setTimeout(done, 300))")
    told = tab.value(
        "[...document.querySelectorAll('#spans tbody td:nth-child(2)')].map((e) => e.textContent)"
    )
    spans = tab.value("tenureTrace.spansInView().length")
    looks.that("the table has the spans in view", holds=len(told) == min(spans, 200), told=spans)
    looks.that("with their owners", holds={"batch", "session"} <= set(told), told=set(told))
    tab.value("document.getElementById('table-part').open = false")


def _long(tab: Tab, looks: Looks, folder: Path, pictures: Path | None) -> None:
    """A hundred thousand events, at full width and zoomed in."""
    page, lines = folder / "long.html", long_log(100_000)
    start = time.perf_counter()
    page.write_text(make_page("long.jsonl", draw_lines(lines)), encoding="utf-8")
    looks.figures["long_seconds_to_make"] = round(time.perf_counter() - start, 1)
    start = time.perf_counter()
    tab.open(page)
    _settle(tab)
    looks.figures["long_events"] = len(lines)
    looks.figures["long_seconds_to_open"] = round(time.perf_counter() - start, 1)
    looks.figures["long_megabytes"] = round(page.stat().st_size / 1e6, 1)
    for name, script in (("whole", ""), ("zoomed", "tenureTrace.zoom(0.01);")):
        took = tab.value(f"{script} Math.min(...[1, 2, 3].map(() => tenureTrace.timeToDraw()))")
        looks.figures[f"long_ms_to_draw_{name}"] = round(took, 1)
        looks.that(f"drawing the {name} log is quick", holds=took < FRAME_MS, told=took)
        _picture(tab, pictures, f"long-{name}.png")


def main(run: Callable[[Tab, Path, Path | None], Looks] = look) -> int:
    """Look, and say what was wrong; exit with 1 if anything was, with 2 without a browser."""
    parser = argparse.ArgumentParser(prog="python -m tests.adapters.trace_browser")
    parser.add_argument("--pictures", type=Path, help="save screenshots to this folder")
    parser.add_argument("--json", action="store_true", dest="as_json")
    options = parser.parse_args()
    program = find_browser()
    if program is None:
        sys.stderr.write("no Chromium was found; install one, or set TENURE_BROWSER\n")
        return 2
    with tempfile.TemporaryDirectory(prefix="tenure-pages-") as folder, open_tab(program) as tab:
        looks = run(tab, Path(folder), options.pictures)
        version: str = tab.call("Browser.getVersion")["product"]
    told: dict[str, Any] = {
        "browser": version,
        "checks": looks.checks,
        "failed": len(looks.problems),
        "problems": looks.problems[:50],
        **looks.figures,
    }
    lines = [json.dumps(told)] if options.as_json else [f"{k}: {v}" for k, v in told.items()]
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if looks.problems else 0


if __name__ == "__main__":
    sys.exit(main())
