"""``tenure bench core``: every figure can be measured; how large it is depends on the machine."""

import json

import pytest
from click.testing import CliRunner

from adapters.cli import main
from adapters.cli.bench.first_token import ttft_ms
from adapters.cli.bench.hop import hop_us
from adapters.cli.bench.idle import idle_sessions
from adapters.cli.bench.ownership import lease_us, ledger_ns
from adapters.cli.bench.steps import step_ms


def test_small_runs_of_the_cheap_figures_are_positive() -> None:
    """The code that measures runs at every change, so that it runs when somebody wants a figure."""
    assert ledger_ns(batches=2, repeats=1) > 0
    assert lease_us(steps=2, repeats=1) > 0
    assert hop_us(hops=100, repeats=1) > 0


def test_steps_are_measured_by_rows() -> None:
    """Keys are strings, as JSON has them."""
    figures = step_ms(repeats=1, rows=(1, 4))

    assert list(figures) == ["1", "4"]
    assert min(figures.values()) > 0


def test_idle_sessions_are_counted_timed_and_weighed() -> None:
    """A session at rest costs no task; what it costs is bytes, and a turn leaves few behind."""
    figures = idle_sessions(count=50, used=20)

    assert figures["count"] == 50
    assert 0 < figures["bytes_each"] < 2_450
    assert 0 < figures["bytes_after_turns"] < 3_300
    assert 0 < figures["bytes_with_store"] < 4_200


@pytest.mark.timeout(120)
def test_the_first_token_costs_the_same_tokens_whatever_the_history() -> None:
    """On a recurrent model a later turn computes its own tokens only."""
    figures = ttft_ms(runs=1, histories=(8, 64))

    assert figures["tokens_computed"] == {"8": [5], "64": [5]}


def test_the_json_form_holds_what_was_asked_for() -> None:
    """Progress goes to standard error, so that standard output is one object."""
    result = CliRunner().invoke(main, ["bench", "core", "--json", "--only", "hop_us"])

    assert result.exit_code == 0
    assert list(json.loads(result.stdout)) == ["hop_us"]


def test_the_plain_form_names_the_target() -> None:
    """A figure alone says little."""
    result = CliRunner().invoke(main, ["bench", "core", "--only", "hop_us"])

    assert "(target 2)" in result.stdout
