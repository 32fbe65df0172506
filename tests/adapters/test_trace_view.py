"""The drawn page: it is whole, it loads nothing, and what it draws is what the log says.

What only a browser can tell (pixels, keys, the console) is told by
``python -m tests.adapters.trace_browser``.
"""

import json
import re
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from adapters.cli import main
from adapters.trace_view import draw_lines, make_page
from tests.adapters.trace_logs import engine_log, ledger_log
from tests.adapters.trace_owners import owners_by_event
from tests.cli.log_writer import LogWriter

VOID = {"meta", "link", "input", "br"}


class Page(HTMLParser):
    """Reads a page strictly: what is opened is closed, in order; keeps scripts and addresses."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.scripts: list[str] = []
        self.data = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        named = dict(attrs)
        if identity := named.get("id"):
            self.ids.append(identity)
        self.addresses += [named[name] or "" for name in ("src", "href") if name in named]
        if tag == "script":
            self.scripts.append(named.get("id") or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script" and self.scripts[-1] == "trace-data":
            self.data += data


def embedded(lines: Iterable[str]) -> list[dict[str, Any]]:
    """What the page of a log has inside of it."""
    engines: list[dict[str, Any]] = json.loads(Page(make_page("log", draw_lines(lines))).data)[
        "engines"
    ]
    return engines


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("make", [engine_log, ledger_log])
def test_each_slot_has_the_owner_that_the_log_says_at_each_event(make: Any, seed: int) -> None:
    """From the page's own data, against a replay of the log that shares no code with it."""
    lines = make(seed)
    (engine,) = embedded(lines)
    ((_, *right),) = [[None, *states] for states in owners_by_event(lines)]

    slots = engine["slots"] + engine["host_slots"]
    drawn = [["free"] * engine["lanes"] for _ in right]
    owners = ["batch", "session", "cache", "draining", "quarantined"]
    for lane, begun, ended, owner, _ in engine["spans"]:
        for event in range(begun, ended):
            assert drawn[event][lane] == "free", "two spans of one slot lie over one another"
            drawn[event][lane] = owners[owner]
    assert [row[:slots] for row in drawn] == right


def test_the_life_of_a_claim_is_told_from_its_reserve_to_its_end() -> None:
    """What the panel says when a span is clicked."""
    log = LogWriter()
    log.write("turn.started", session="ada", turn="turn-0", kind="generate", prompt_tokens=3)
    log.reserve(0, 1, [10, 11])
    log.step(0, 0, 6, frozen=[10], run=100)
    log.commit(0, 1, 6)
    log.close(0, 1, [11, 10], runs=[100])
    (engine,) = embedded(log.lines)

    ((number, turn, session, lane, base, begun, ended, events),) = engine["claims"]
    assert (number, turn, session, lane, base) == (0, "turn-0", "ada", 1, None)
    assert (begun, ended) == (2, 6)
    assert [what for _, what, _ in events] == [
        "reserved",
        "launched",
        "landed",
        "committed",
        "closed",
    ]


def test_pages_are_counted_by_owner_and_those_in_runs_apart() -> None:
    """Two own pages, of which one is frozen and then comes back with its run."""
    log = LogWriter()
    log.reserve(0, 1, [10, 11])
    log.step(0, 0, 6, frozen=[10], run=100)
    log.commit(0, 1, 6)
    log.close(0, 1, [11, 10], runs=[100])
    (engine,) = embedded(log.lines)

    batch, session, frozen = 1, 2, 6
    told = [(row[0], row[batch], row[session], row[frozen]) for row in engine["usage"]]
    assert told == [(1, 2, 0, 0), (3, 1, 0, 1), (4, 0, 1, 1), (5, 0, 0, 0)]


def test_a_step_is_a_box_in_each_slot_that_it_holds() -> None:
    """From its launch to its landing; one that failed is told apart."""
    log = LogWriter()
    log.reserve(0, 1)
    log.reserve(1, 3)
    log.launch(0, 0, 1)
    rows = [{"claim": each, "position": 0, "frozen": list[int](), "run": None} for each in (0, 1)]
    log.write("lease.landed", lease=0, step=0, outcome="failed", rows=rows, unpinned=[])
    (engine,) = embedded(log.lines)

    assert engine["steps"] == [[1, 3, 4, 0, 0, 0], [3, 3, 4, 0, 1, 0]]


def test_a_model_without_slots_gets_a_lane_for_each_claim_at_a_time() -> None:
    """Attention-only models have claims, and these have owners."""
    log = LogWriter(slots=0)
    log.reserve(0, None, [10])
    log.reserve(1, None, [11])
    log.release("rolled_back", 0, None, [10])
    log.reserve(2, None, [10])
    (engine,) = embedded(log.lines)

    assert [claim[3] for claim in engine["claims"]] == [0, 1, 0]
    assert engine["lanes"] == 2


def test_each_place_has_its_lanes() -> None:
    """Slots of the device, then those of the host, then claims that have none."""
    lines = [line for seed in range(4) for line in ledger_log(seed)]
    told = [claim for engine in embedded(lines) for claim in engine["claims"]]
    lanes_of: dict[str, set[int]] = {}
    for _, _, _, lane, _, _, _, events in told:
        where = events[0][2].partition(",")[0]
        lanes_of.setdefault(where if where.startswith("in") else "", set()).add(lane)

    assert lanes_of[""] == set(range(6))
    assert lanes_of["in host memory"] == {6, 7, 8}
    assert lanes_of["into a file"] == {9}
    facts = " ".join(events[0][2] for *_, events in told)
    assert ", a working one, at position" in facts
    assert "after 1 page that were dropped" in facts


def test_a_damaged_log_is_drawn_as_far_as_it_goes_and_says_what_is_wrong() -> None:
    """That is when one wants to look at it."""
    lines = engine_log(7)
    (engine,) = embedded(lines[:30] + lines[34:])

    assert not engine["conserved"]
    assert engine["problems"]
    assert len(engine["spans"]) > 5


@pytest.mark.parametrize(
    ("event", "field", "told"),
    [
        ("ledger.opened", "slots", "many"),
        ("ledger.opened", "at", float("nan")),
        ("claim.reserved", "at", 10**400),
        ("claim.reserved", "slot", "third"),
        ("claim.reserved", "claim", "first"),
        ("claim.committed", "owner", "nobody"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_field_of_another_type_is_passed_over(event: str, field: str, told: object) -> None:
    """What the audit finds wrong, the drawing must not die of."""
    lines = engine_log(7)
    damaged = next(number for number, line in enumerate(lines) if f'"{event}"' in line)
    lines[damaged] = json.dumps({**json.loads(lines[damaged]), field: told})
    (engine,) = embedded(lines)

    assert engine["problems"]
    assert engine["spans"]


def test_a_first_line_that_stands_there_twice_begins_no_second_drawing() -> None:
    """The second would have no verdict of the audit's, and look sound."""
    lines = engine_log(3)
    first = next(n for n, line in enumerate(lines) if '"ledger.opened"' in line)
    (whole,) = embedded(lines)
    for place in (first + 1, len(lines)):
        (engine,) = embedded([*lines[:place], lines[first], *lines[place:]])

        assert not engine["conserved"]
        assert "misplaced: " in engine["problems"][0]
        assert engine["spans"] == whole["spans"]


def test_a_bare_ledgers_log_names_no_engine_and_is_drawn() -> None:
    """As it is audited; whatever else an application logs passes by."""
    lines: list[str] = []
    for line in ledger_log(2):
        fields = json.loads(line)
        for name in ("engine", "check", "after"):
            fields.pop(name, None)
        lines += [json.dumps(fields), '{"event": "anything", "at": 1e9}']
    (engine,) = embedded(lines)
    (whole,) = embedded(ledger_log(2))

    assert engine["conserved"]
    assert engine["spans"] == whole["spans"]


def test_two_engines_and_two_ledgers_of_one_name_are_drawn_apart() -> None:
    """As the audit tells them apart."""
    first, again = LogWriter("engine-9"), LogWriter("engine-9")
    for log in (first, again):
        log.reserve(0, 1)
        log.release("rolled_back", 0, 1)
    engines = embedded([*first.lines, *ledger_log(2), *again.lines])

    assert [engine["engine"] for engine in engines] == ["engine-9", "ledger-2", "engine-9"]
    assert [len(engine["claims"]) for engine in engines[::2]] == [1, 1]
    assert all(engine["conserved"] for engine in engines)


def test_the_page_is_whole_and_loads_nothing() -> None:
    """It is mailed, and opened from a disk, years later."""
    page = Page(text := make_page("a <b> & c.jsonl", draw_lines(engine_log(3))))

    assert page.open == []
    assert len(set(page.ids)) == len(page.ids)
    assert page.addresses == ["data:,"]
    assert not re.search(r"https?:|@import|url\(|fetch\(|XMLHttpRequest|import\(", text)
    assert "a &lt;b&gt; &amp; c.jsonl" in text
    assert "{{" not in re.sub(r"\$\{\{", "", text)


def test_what_a_log_says_can_not_end_its_script() -> None:
    """Ids are the caller's, and the page is opened by somebody else."""
    log = LogWriter()
    turn = "</script><script>alert(1)</script>{{data}}"
    log.write("claim.reserved", claim=0, slot=1, pages=[], base=None, position=0, turn=turn)
    page = Page(make_page("{{script}}", draw_lines(log.lines)))

    assert page.scripts == ["trace-data", ""]
    assert json.loads(page.data)["engines"][0]["claims"][0][1] == turn


def test_every_id_that_the_script_asks_for_is_in_the_page() -> None:
    """Without a browser at hand, the most likely of its errors."""
    text = make_page("log", draw_lines(engine_log(3)))

    assert set(re.findall(r'\$\("([\w-]+)"\)', text)) <= set(Page(text).ids)


def test_the_command_writes_the_page(tmp_path: Path) -> None:
    """And says what it has drawn."""
    log, page = tmp_path / "events.jsonl", tmp_path / "view.html"
    log.write_text("\n".join(engine_log(3)), encoding="utf-8")

    result = CliRunner().invoke(main, ["trace", "view", str(log), "-o", str(page)])

    assert result.exit_code == 0
    assert result.output.startswith("engine-3: ")
    assert Page(page.read_text(encoding="utf-8")).scripts == ["trace-data", ""]


def test_a_log_without_a_ledger_is_an_empty_page_and_exits_with_1(tmp_path: Path) -> None:
    """The usual reason is that events were switched off, so the message asks."""
    log, page = tmp_path / "events.jsonl", tmp_path / "view.html"
    log.write_text('{"event": "request.served"}\n', encoding="utf-8")

    result = CliRunner().invoke(main, ["trace", "view", str(log), "-o", str(page)])

    assert result.exit_code == 1
    assert "log_events" in result.output
