"""A process that is killed loses nothing that was reported to it, under every policy."""

import pytest

from kernel.session_store import SyncPolicy
from tests.store.kills import kill_often


@pytest.mark.parametrize("sync", ["full", "off"])
def test_a_kill_loses_nothing_that_was_reported(sync: SyncPolicy) -> None:
    """Hundreds of kills are ``python -m tests.store.kills``."""
    kills = kill_often(4, sync, seed=11)

    assert kills.broken == []
    assert kills.reported_turns > 0
