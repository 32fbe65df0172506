"""Engines here are opened by the dozen, and compared with each other.

To measure how many threads are fastest would take longer than most of these tests; and two engines
that found different numbers would round differently.
"""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package", autouse=True)
def one_torch_thread() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TENURE_TORCH_THREADS", "1")
        yield
