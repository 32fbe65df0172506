"""Fixtures of the ledger's tests."""

import pytest

from tests.ownership.support import Desk, Recorder, open_desk


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What says what is wrong comes before what searches for it, and then takes long to shrink."""
    searching = {"test_machine", "test_state_machine"}
    items.sort(key=lambda item: item.path.stem in searching)


@pytest.fixture
def desk() -> Desk:
    return open_desk()


@pytest.fixture
def roomy() -> Desk:
    """A desk with as much host memory as device memory: slots 4 to 7, pages 16 to 31."""
    return open_desk(host=(4, 16))


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def watched(recorder: Recorder) -> Desk:
    """A desk whose ledger is observed by ``recorder``."""
    return open_desk(observer=recorder)
