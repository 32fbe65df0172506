"""Tensors here are tiny: two torch threads would only wait for each other."""

from collections.abc import Iterator

import pytest
import torch

from adapters.torch_device.threads import set_threads_of_this_thread


@pytest.fixture(scope="package", autouse=True)
def one_torch_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    set_threads_of_this_thread(1)
    yield
    set_threads_of_this_thread(before)
