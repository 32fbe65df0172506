"""What must not type-check does not, and what must does: in mypy strict and in pyright strict.

The first layer of the proof that a slot can't be freed twice: the seed's bug is a type error.
"""

import pytest

from tests.types.conftest import Findings
from tests.types.programs import ACCEPTED, PROGRAMS, REJECTED, rejected_lines

pytestmark = pytest.mark.timeout(180)


@pytest.mark.parametrize("program", sorted(PROGRAMS))
def test_mypy_rejects_exactly_the_marked_lines(mypy_findings: Findings, program: str) -> None:
    """An error elsewhere would mean that the program fails for another reason."""
    found = mypy_findings.get(program, {})

    assert found.keys() == rejected_lines(program), found


@pytest.mark.parametrize("program", sorted(PROGRAMS))
def test_pyright_rejects_exactly_the_marked_lines(pyright_findings: Findings, program: str) -> None:
    """The two disagree often enough that both are asked."""
    found = pyright_findings.get(program, {})

    assert found.keys() == rejected_lines(program), found


def test_every_program_that_must_be_rejected_marks_a_line() -> None:
    """Else its test would pass for nothing."""
    assert all(rejected_lines(name) for name in REJECTED)
    assert not any(rejected_lines(name) for name in ACCEPTED)
