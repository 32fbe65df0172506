"""The demo end to end: conserved on a sound engine, and a planted bug is found in its log."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from adapters.cli import main
from adapters.cli.demo.command import pages_for, rows_for
from adapters.cli.demo.plan import DemoSize, make_plan
from adapters.cli.demo.run import DemoRun, run_demo
from adapters.cli.demo.view import SilentView
from adapters.cli.plant import plant
from adapters.fake_device import FakeDevice
from kernel import EngineConfig, OpenedDevice

KEYS = {
    "sessions",
    "turns",
    "one_shots",
    "tokens",
    "tokens_per_s",
    "rollbacks",
    "preemptions",
    "forced_parks",
    "recomputed_tokens",
    "cached_tokens",
    "cancelled",
    "leaked",
    "double_frees",
    "reclaimed",
    "conserved",
    "ttft_first_turn_ms",
    "ttft_later_turn_ms",
    "seed",
}
SMALL = DemoSize(sessions=16, turns=3, one_shots=8, max_tokens=20, pace=0.05)
FAST = ["--device", "fake", "--model", "fake", "--sessions", "6", "--turns", "2"]


async def run(folder: Path, *, seed: int, slots: int, pages: int, rows: int = 6) -> DemoRun:
    device = FakeDevice(delay=0.001)
    config = EngineConfig(
        max_num_seqs=rows, num_slots=slots, num_pages=pages, page_size=4, seed=seed
    )
    return await run_demo(
        config,
        make_plan(SMALL, seed),
        log=folder / "events.jsonl",
        view=SilentView(),
        limit_s=15.0,
        device=OpenedDevice(device=device, tokenizer=device.tokenizer),
    )


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_a_pool_too_small_for_its_clients_is_conserved(tmp_path: Path, seed: int) -> None:
    """The main job, with everything in it that has leaked elsewhere."""
    result = await run(tmp_path, seed=seed, slots=7, pages=120)
    report = result.report

    assert result.tally.errors == []
    assert report.conserved
    assert (report.leaked, report.double_frees, report.reclaimed) == (0, 0, 0)
    assert (report.sessions, report.one_shots, report.seed) == (16, 8, seed)
    assert min(report.turns, report.tokens, report.cancelled, report.rollbacks) > 0
    assert report.forced_parks > 0


async def test_with_slots_for_everybody_nothing_is_computed_again(tmp_path: Path) -> None:
    """A session that keeps its state pays for its new tokens only.

    What an interrupt cut off a state and the next turn absorbs is the price of the interrupt:
    the state was not lost for lack of room, so it doesn't count as computed again.
    """
    result = await run(tmp_path, seed=1, slots=40, pages=1200, rows=24)

    assert result.report.conserved
    assert result.report.forced_parks == 0
    assert result.report.preemptions == 0
    assert result.report.recomputed_tokens == 0
    assert result.report.cached_tokens > 0


async def test_the_seeds_bug_is_found_in_the_log(tmp_path: Path) -> None:
    """A refused later turn that gives back its session's slot: two owners, then a double free."""
    with plant("seed-rollback"):
        result = await run(tmp_path, seed=1, slots=10, pages=400)

    assert not result.report.conserved
    assert result.report.double_frees > 0
    assert any(problem.kind == "alias" for problem in result.audit.engines[0].problems)


def test_slots_for_everybody_are_of_use_to_everybody() -> None:
    """Turns that wait for a row would be preempted for one, whatever the pool holds."""
    assert [rows_for(slots) for slots in (1, 26, 40, 500)] == [16, 16, 40, 64]


def test_slots_for_everybody_come_with_pages_for_everybody() -> None:
    """Who asks for slots alone wants to see nothing computed again."""
    result = CliRunner().invoke(
        main, ["demo", "--json", "--pace", "0.05", "--num-slots", "64", *FAST]
    )
    report = json.loads(result.stdout)

    assert pages_for(26) is not None
    assert pages_for(64) is None
    assert (report["forced_parks"], report["recomputed_tokens"]) == (0, 0)


def test_a_plant_ends_with_its_block() -> None:
    """What runs after it in this process is sound again."""
    from ownership import admission

    before = admission.reserve
    with plant("seed-rollback"):
        assert admission.reserve is not before

    assert admission.reserve is before


def test_an_unknown_plant_is_refused() -> None:
    """A misspelt bug that changed nothing would look like a proof."""
    with pytest.raises(ValueError, match="seed-rollback"), plant("none"):
        pass


def test_json_is_one_object_with_exactly_the_documented_keys() -> None:
    """A program reads it, and nothing else stands on standard output."""
    result = CliRunner().invoke(main, ["demo", "--json", "--pace", "0.05", *FAST])

    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert set(report) == KEYS
    assert report["conserved"] is True


def test_plain_output_ends_with_the_verdict() -> None:
    """A terminal isn't always there."""
    result = CliRunner().invoke(main, ["demo", "--pace", "0.05", *FAST])

    assert result.exit_code == 0
    assert "verdict: every slot and page had one owner (seed 1)" in result.stdout
    assert "\x1b" not in result.stdout


def test_the_log_can_be_kept_and_audited_again(tmp_path: Path) -> None:
    """The verdict is nobody's word: anybody may replay the log."""
    log = tmp_path / "demo.events.jsonl"
    log.write_text("left from an earlier run\n", encoding="utf-8")
    ran = CliRunner().invoke(main, ["demo", "--json", "--pace", "0.05", "--log", str(log), *FAST])
    audited = CliRunner().invoke(main, ["trace", "audit", "--json", str(log)])

    assert (ran.exit_code, audited.exit_code) == (0, 0)
    assert json.loads(audited.stdout)["skipped_lines"] == 0


def test_a_log_in_no_folder_is_a_usage_error(tmp_path: Path) -> None:
    """Told before a minute has been spent on the run."""
    log = tmp_path / "nowhere" / "events.jsonl"
    result = CliRunner().invoke(main, ["demo", "--log", str(log), *FAST])

    assert result.exit_code == 2
    assert "nowhere is no directory" in result.stderr


@pytest.mark.parametrize("option", [("--pace", "-1"), ("--limit-s", "0")])
def test_a_time_that_makes_no_sense_is_refused(option: tuple[str, str]) -> None:
    """Before an engine is opened, and not by every client of it."""
    result = CliRunner().invoke(main, ["demo", *option, *FAST])

    assert result.exit_code == 2
    assert option[0] in result.stderr


def test_the_plant_exits_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """What continuous integration would see."""

    def open_slow(**_options: object) -> OpenedDevice:
        # Steps that take no time are over before anybody could be refused.
        slow = FakeDevice(delay=0.001)
        return OpenedDevice(device=slow, tokenizer=slow.tokenizer)

    monkeypatch.setattr("adapters.fake_device.open_fake", open_slow)
    options = ["--num-slots", "22", "--num-pages", "400", "--pace", "0.05", "--device", "fake"]
    result = CliRunner().invoke(main, ["demo", "--plant", "seed-rollback", *options])

    assert result.exit_code == 1
    assert "NOT CONSERVED" in result.stdout
