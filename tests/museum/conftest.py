"""The devices of the scenarios where numbers matter: the fake one, and the bundled model."""

from tests.mutants.mutant import ROOT
from tests.scenarios.conftest import opened_device, pytest_collection_modifyitems

__all__ = ["collect_ignore", "opened_device", "pytest_collection_modifyitems"]

# In a copy with a bug in it (it has no docs) the scenarios are asked, and not the museum itself:
# its own tests would fail there whatever the bug is.
collect_ignore = [] if (ROOT / "docs").is_dir() else ["test_museum.py", "test_runner.py"]
