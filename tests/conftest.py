"""What all tests share: both event loops by default, and hypothesis without a deadline."""

import pytest
from hypothesis import settings

# Two cores shared with a type checker make wall-clock deadlines of single examples a coin toss.
settings.register_profile("tenure", deadline=None, print_blob=True)
settings.load_profile("tenure")


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Run each async test on both backends; a test overrides it by parametrising."""
    backend = request.param
    assert isinstance(backend, str)
    return backend
