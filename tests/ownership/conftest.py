"""Fixtures of the ledger's tests."""

import pytest

from tests.ownership.support import Desk, Recorder, open_desk


@pytest.fixture
def desk() -> Desk:
    return open_desk()


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def watched(recorder: Recorder) -> Desk:
    """A desk whose ledger is observed by ``recorder``."""
    return open_desk(observer=recorder)
