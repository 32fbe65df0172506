"""Planted move faults are reported, and this repository has none."""

import ast

import pytest

from ownership.lint import Config, check_paths
from tests.lint.inject import KINDS, faults
from tests.lint.recall import measure
from tests.lint.sites import ROOT, sources

PLANTED = list(faults(200))


@pytest.mark.timeout(60)
def test_this_repository_is_clean_without_a_suppression() -> None:
    """The promise of the move checker is kept where it was made."""
    report = check_paths(
        [ROOT / name for name in ("ownership", "kernel", "adapters", "tests")],
        Config.load(ROOT / "pyproject.toml"),
    )

    assert [finding.render() for finding in report.findings] == []
    assert report.unreadable == []
    assert report.files > 200


@pytest.mark.timeout(60)
def test_planted_faults_are_reported() -> None:
    """Twenty of the two hundred that ``python -m tests.lint.recall`` plants."""
    recall = measure(PLANTED[:20])

    assert (recall.reported, recall.missed) == (20, [])
    assert recall.findings_without_faults == 0


def test_faults_are_planted_in_many_places_and_are_no_two_the_same() -> None:
    """Two hundred times one fault would be one fault."""
    planted = PLANTED

    assert len(planted) == 200
    assert len({fault.text for fault in planted}) == 200
    assert {fault.kind for fault in planted} == KINDS.keys()
    assert len({(fault.path, fault.line) for fault in planted}) >= 100
    assert len({fault.path for fault in planted if fault.path.startswith("kernel/")}) >= 6


def test_a_fault_changes_its_file_and_leaves_a_program() -> None:
    """A file that does not parse is refused for another reason."""
    texts = sources()
    for fault in PLANTED:
        assert fault.text != texts[fault.path]
        ast.parse(fault.text)


def test_the_same_seeds_plant_the_same_faults() -> None:
    """What was missed can be looked at again."""
    assert [fault.text for fault in faults(40)] == [fault.text for fault in PLANTED[:40]]
