"""Random verbs in any order: conserved after every one, and no claim's memory is touched.

Three witnesses that share nothing with the ledger: the audit, the replay of its events, and a
device that remembers what was written where.
"""

import random

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from tests.ownership.choosers import Drawn, Seeded
from tests.ownership.machine import Machine


@settings(max_examples=40)
@given(st.data())
def test_drawn_verbs_conserve_everything(data: st.DataObject) -> None:
    """Few and short, and a failure shrinks to the shortest story."""
    machine = Machine(Drawn(data))
    for _ in range(data.draw(st.integers(1, 40))):
        machine.step()
    machine.end()


def run_seed(seed: int, steps: int) -> None:
    machine = Machine(Seeded(random.Random(seed)))
    for _ in range(steps):
        machine.step()
    machine.end()


@pytest.mark.parametrize("seed", range(20))
def test_seeded_verbs_conserve_everything(seed: int) -> None:
    """Long and deep: what fails here is named by its seed."""
    run_seed(seed, 250)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_seeded_verbs_conserve_everything() -> None:
    """The same for minutes, by hand."""
    for seed in range(1000, 2000):
        run_seed(seed, 300)
