"""``tenure bench sessions``: every figure can be measured; how large it is, the machine says."""

import json
from importlib import import_module
from pathlib import Path

import anyio
import pytest
from click.testing import CliRunner

from adapters.cli import main
from adapters.cli.bench import resume_plot
from adapters.cli.bench.many_sessions import ManySessions
from adapters.cli.bench.resume import TIERS, resume_ms
from adapters.cli.bench.resume_plot import draw
from adapters.cli.bench.scale import sizes_up_to
from adapters.cli.bench.small_states import SMALL_MODELS, open_small
from adapters.cli.bench.start_up import start_up


@pytest.mark.timeout(120)
async def test_a_turn_does_the_same_operations_among_few_sessions_and_among_many(
    tmp_path: Path,
) -> None:
    """Latency is the machine's; what is done for a turn is ours, and doesn't know how many."""
    many = ManySessions((30, 60), tmp_path, "fake", "off", lambda _what: None)
    async with many.open():
        await many.measure(6)
    few, more = many.per_turn().values()

    assert few == more
    assert few["steps"] == 4
    assert {name: count for name, count in few.items() if name[0].isupper()} == dict.fromkeys(
        ("KeepState", "KeepTurn", "ReadSession", "ReadState"), 1
    )
    assert min(*many.turn_ms().values(), *many.turn_cpu_ms().values()) > 0


@pytest.mark.timeout(120)
def test_a_fresh_process_opens_what_another_engine_has_kept(tmp_path: Path) -> None:
    """Its time and its memory are those of an engine that has just started."""
    many = ManySessions((20,), tmp_path, "fake", "off", lambda _what: None)

    async def fill() -> None:
        async with many.open():
            pass

    anyio.run(fill)
    found = start_up(many.store_of(20), "fake", "off", turns=3, traced=True)

    assert found["sessions"] == 20
    assert min(found["start_s"], found["first_turn_s"], found["opened_bytes"]) > 0


def test_sizes_are_powers_of_ten_up_to_what_was_asked_for() -> None:
    """The smallest is what all others are compared with."""
    assert sizes_up_to(100) == (100,)
    assert sizes_up_to(100_000) == (100, 1_000, 10_000, 100_000)
    assert sizes_up_to(2_500) == (100, 1_000, 2_500)


@pytest.mark.parametrize("name", sorted(SMALL_MODELS))
def test_a_small_state_takes_at_most_256_bytes(name: str) -> None:
    """So that the run is about the number of sessions and not about copying."""
    device = open_small(name)
    device.close()

    assert 0 < device.model.slot_bytes <= 256
    assert not device.model.uses_pages


@pytest.mark.timeout(120)
@pytest.mark.parametrize("model", ["hybrid", "recurrent"])
def test_from_each_tier_but_the_log_a_turn_computes_its_own_tokens_only(model: str) -> None:
    """That is what a tier is for; and the log costs what computing anew does."""
    figures = resume_ms((40,), model=model, runs=1)
    tokens = {tier: found["40"] for tier, found in figures["resume_tokens"].items()}

    assert tokens == {
        **{tier: [5] for tier in TIERS},
        "log": [40 + 8 + 4],
        "reprefill": [40],
    }
    assert set(figures["resume_ms"]) == set(TIERS)


def test_the_plot_has_a_line_for_each_tier_and_is_the_same_each_time(tmp_path: Path) -> None:
    """A figure that is drawn anew changes only with its numbers."""
    points = {"1000": 2.0, "10000": 3.0}
    found = {"resume_ms": dict.fromkeys(TIERS, points), "reprefill_ms": points}
    for name in ("one.svg", "two.svg"):
        draw({"hybrid": found, "recurrent": found}, tmp_path / name)
    text = (tmp_path / "one.svg").read_text(encoding="utf-8")

    assert text == (tmp_path / "two.svg").read_text(encoding="utf-8")
    assert all(label in text for label in ("host memory", "log only", "recurrent"))


def test_what_was_measured_at_each_size_stands_in_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One line a figure, however deep it lies; sizes in the order of their numbers."""
    figures = {
        "model": "fake",
        "bytes_each": {"host": 23, "disk": 360},
        "turn_ms": {"100": 4.8, "1000": 13.385},
        "per_turn": {"1000": {"steps": [4, 5]}, "100": {"steps": [4]}},
    }

    def scale(*_sizes: int, **_options: object) -> dict[str, object]:
        return dict(figures)

    monkeypatch.setattr(import_module("adapters.cli.bench.scale"), "scale", scale)
    result = CliRunner().invoke(main, ["bench", "sessions", "--only", "scale"])

    assert result.stdout.splitlines() == [
        "many sessions on one engine",
        "model            fake",
        "bytes_each host  23",
        "bytes_each disk  360",
        "",
        "by number of sessions  100   1,000",
        "turn_ms                4.8  13.385",
        "per_turn steps           4    4, 5",
    ]


@pytest.mark.parametrize("histories", ["0,10", "1000000", "ten"])
def test_histories_that_no_model_holds_are_refused(histories: str) -> None:
    """Before anything is measured."""
    result = CliRunner().invoke(main, ["bench", "sessions", "--histories", histories])

    assert result.exit_code == 2
    assert "tokens" in result.stderr


def test_the_store_that_is_resumed_from_lies_on_the_disk_to_measure(tmp_path: Path) -> None:
    """And on no other: where that isn't there, nothing is measured."""
    with pytest.raises(FileNotFoundError, match="nowhere"):
        resume_ms((40,), runs=1, directory=tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--plot", "nowhere/a.svg"], "nowhere"),
        (["--plot", "a.svg", "--only", "scale"], "--only scale"),
        (["--directory", "nowhere"], "nowhere"),
    ],
)
def test_what_could_not_be_written_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str
) -> None:
    """The run takes many minutes."""
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["bench", "sessions", "--quick", *arguments])

    assert result.exit_code == 2
    assert says in result.stderr
    assert "opening" not in result.stderr


def test_a_plot_without_what_draws_it_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the way to get it."""

    def nothing_found(_name: str) -> None:
        return None

    monkeypatch.setattr(resume_plot, "find_spec", nothing_found)
    command = ["bench", "sessions", "--quick", "--plot", str(tmp_path / "a.svg")]
    result = CliRunner().invoke(main, command)

    assert result.exit_code == 2
    assert "tenure[plots]" in result.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_json_form_holds_all_that_was_asked_for(tmp_path: Path) -> None:
    """As documented; the plot is written beside."""
    plot = tmp_path / "resume.svg"
    command = ["bench", "sessions", "--json", "--quick", "--runs", "1", "--plot", str(plot)]
    result = CliRunner().invoke(main, command)

    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)
    keys = {"sessions", "bytes_each", "turn_ms", "start_s", "resume_ms", "reprefill_ms"}
    assert keys <= figures.keys()
    assert set(figures["turn_ms"]) == {"100", "1000"}
    assert {tuple(found) for found in figures["resume_ms"].values()} == {("100", "1000")}
    assert plot.is_file()
