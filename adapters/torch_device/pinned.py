"""How much host memory may be asked for where torch is to pin it.

torch's allocator for pinned memory rounds each array up to a power of two, so that its blocks can
be used again: 5 GiB take 8. An engine's arrays live as long as it does and gain nothing by that.
No process-wide setting is changed from here: the plan allows for it instead, unless the
application has made that setting itself.
"""

import os
from collections.abc import Mapping

__all__ = ["pinnable_bytes"]

_SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
_THRESHOLD = "pinned_max_round_threshold_mb"
"""Larger arrays are pinned as they are."""


def pinnable_bytes(free: int, settings: Mapping[str, str] = os.environ) -> int:
    """Most bytes of arrays that fit into the free ones, whatever their sizes.

    Args:
        free: bytes of the host's memory.
        settings: the environment, where torch's allocators are configured.
    """
    if any(_THRESHOLD in settings.get(name, "") for name in _SETTINGS):
        return free
    return free // 2  # the power of two is less than twice the array
