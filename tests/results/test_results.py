"""Kept results speak of the code as it is; and the framework that sees to it."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.results import run as results_run
from tests.results.__main__ import main
from tests.results.digest import ROOT, digest, files_of, normal_form
from tests.results.record import FOLDER, RunFailed, make, read, write
from tests.results.run import Condition, Run, troubles
from tests.results.table import RUNS


def _name(run: Run) -> str:
    return run.name


@pytest.mark.parametrize("run", RUNS, ids=_name)
def test_a_result_is_of_this_code_and_its_figures_hold(run: Run) -> None:
    """A figure of code that has changed since is a figure of something else."""
    if run.is_expected:
        assert troubles(run, read(run)) == []


@pytest.mark.parametrize("run", RUNS, ids=_name)
def test_a_run_measures_files_that_exist(run: Run) -> None:
    """Patterns that match nothing any more would never be stale."""
    assert files_of(run.measures)


def test_each_kept_result_is_one_of_the_table() -> None:
    """A result that no run can make again can't be checked."""
    assert {path.stem for path in FOLDER.glob("*.json")} <= {run.name for run in RUNS}


def test_no_result_names_a_machine_or_a_folder_of_it() -> None:
    """They are published."""
    import platform

    for path in FOLDER.glob("*.json"):
        text = path.read_text(encoding="utf-8")
        assert platform.node() not in text or len(platform.node()) < 4
        assert str(ROOT) not in text


# The framework


def toy(tmp_path: Path, printed: object, *conditions: str) -> Run:
    script = tmp_path / "toy.py"
    script.write_text(f"print('progress'); print({json.dumps(printed)!r})", encoding="utf-8")
    return Run(
        name="toy",
        command=f"python {script}",
        measures=("tests/results/run.py",),
        conditions=conditions,
        is_expected=True,
    )


SOUND = '''
def f(a):
    """Adds."""
    return [a, 1]  # one
'''


@pytest.mark.parametrize(
    "other",
    [
        'def f(a):\n    """Adds one and says so."""\n    return [a, 1]\n',
        "def f(a):\n    # what it is for\n    return [\n        a,\n        1,\n    ]\n",
        "def f(a): return [a, (1)]\n",
    ],
    ids=["docstring", "layout", "brackets"],
)
def test_wording_and_layout_leave_the_digest_as_it_is(other: str) -> None:
    """Whoever rewords a comment need not run a mutation test of an hour."""
    assert normal_form(other) == normal_form(SOUND)


@pytest.mark.parametrize(
    ("old", "new"),
    [("1]", "2]"), ("f(a)", "f(a=None)"), ("[a, 1]", "[1, a]"), ("def", "async def")],
)
def test_a_change_of_what_runs_changes_the_digest(old: str, new: str) -> None:
    """A constant, a default, an order, a kind."""
    assert normal_form(SOUND.replace(old, new)) != normal_form(SOUND)


def test_the_digest_is_of_names_as_well_as_of_contents(tmp_path: Path) -> None:
    """A renamed module, and data beside the code, count."""
    (tmp_path / "a.py").write_text("x = 1", encoding="utf-8")
    (tmp_path / "b.txt").write_text("one", encoding="utf-8")
    before = digest(["*"], tmp_path)
    (tmp_path / "a.py").rename(tmp_path / "c.py")

    assert digest(["*"], tmp_path) != before
    assert digest(["*", "!b.txt"], tmp_path) == digest(["c.py"], tmp_path)
    with pytest.raises(ValueError, match="matches no file"):
        digest(["d.py"], tmp_path)


def test_a_run_is_kept_with_its_figures_its_code_and_the_shape_of_the_machine(
    tmp_path: Path,
) -> None:
    """Enough to say what the figures are worth, and no name of anything."""
    run = toy(tmp_path, {"seeds": 3, "failed": 0, "all": list(range(99))}, "failed == 0")

    write(run, make(run), tmp_path)
    result = read(run, tmp_path)

    assert result is not None
    assert result["figures"] == {"seeds": 3, "failed": 0, "all": "99 items"}
    assert set(result["machine"]) == {"cpus", "memory_gib", "system", "python", "torch"}
    assert {"commit", "command", "date", "seconds", "code"} <= result.keys()
    assert troubles(run, result) == []


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"code": "0" * 16}, "older than the code it measures (tests/results/run.py)"),
        ({"command": "python other.py"}, "was made by 'python other.py'"),
        ({"figures": {"failed": 2}}, "failed is 2, and has to be == 0.0"),
        ({"figures": {}}, "there is no figure 'failed'"),
    ],
    ids=["code", "command", "figure", "no figure"],
)
def test_what_is_wrong_with_a_result_is_told_with_the_command_that_mends_it(
    tmp_path: Path, change: dict[str, Any], why: str
) -> None:
    """The message is all that whoever breaks it will read."""
    run = toy(tmp_path, {"failed": 0}, "failed == 0")

    (told,) = troubles(run, {**make(run), **change})

    assert why in told
    assert "figures" in change or told.endswith("run `python -m tests.results toy`")
    assert troubles(run, None) == [
        "docs/results/toy.json is missing: run `python -m tests.results toy`"
    ]


@pytest.mark.parametrize(
    ("printed", "conditions", "why"),
    [
        ({"failed": 1}, ("failed == 0",), "failed is 1"),
        ([1, 2], (), "printed no JSON object"),
        ({"caught": 3, "mutants": 4}, ("caught == mutants",), "caught is 3, and has to be == mut"),
    ],
    ids=["condition", "no object", "two figures"],
)
def test_a_run_whose_figures_do_not_hold_gives_no_result(
    tmp_path: Path, printed: object, conditions: tuple[str, ...], why: str
) -> None:
    """The last good result stays until there is another."""
    with pytest.raises(RunFailed, match=why):
        make(toy(tmp_path, printed, *conditions))


def test_a_run_whose_code_is_changed_meanwhile_gives_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody could say which of the two its figures are of."""
    measured = tmp_path / "measured.py"
    measured.write_text("x = 1", encoding="utf-8")
    monkeypatch.setattr(results_run, "digest", partial(digest, root=tmp_path))
    run = attrs.evolve(
        toy(tmp_path, {}),
        measures=("measured.py",),
    )
    (tmp_path / "toy.py").write_text(
        f"open({str(measured)!r}, 'w').write('x = 2'); print('{{}}')", encoding="utf-8"
    )

    with pytest.raises(RunFailed, match="older than the code it measures"):
        make(run)


def test_a_command_that_fails_gives_no_result(tmp_path: Path) -> None:
    """However good its figures look."""
    run = attrs.evolve(toy(tmp_path, {}), conditions=(), command="python -c 'raise SystemExit(3)'")

    with pytest.raises(RunFailed, match="exited with 3"):
        make(run)


def test_a_condition_is_read_strictly() -> None:
    """A condition that compares nothing would always hold."""
    assert str(Condition.parse("a.b >= 3")) == "a.b >= 3.0"
    with pytest.raises(ValueError, match="is not one of"):
        Condition.parse("a < 3")
    nothing = Condition.parse("unseen == 0")
    assert nothing.broken_by({"unseen": []}) is None
    assert nothing.broken_by({"unseen": ["a", "b"]}) == "unseen is 2, and has to be == 0.0"


def test_the_command_makes_what_is_asked_for_and_what_is_stale(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By name always; ``--stale`` those that are expected and missing, old or broken."""
    run = toy(tmp_path, {"failed": 0}, "failed == 0")
    runs = (run, attrs.evolve(run, name="later", conditions=(), is_expected=False))

    for arguments in (["--list"], ["--stale"], ["--stale"], ["--list"]):
        assert main(arguments, runs, tmp_path) == 0
    told = capsys.readouterr().out.splitlines()

    assert {path.name for path in tmp_path.glob("*.json")} == {"toy.json"}
    assert told[0].endswith("toy.json is missing: run `python -m tests.results toy`")
    assert told[1] == "later        not made yet"
    assert [line for line in told if "kept in" in line] == ["toy: kept in toy.json"]
    assert told[-2].startswith("toy          holds")
    assert main(["later"], runs, tmp_path) == 0
    assert (tmp_path / "later.json").is_file()
