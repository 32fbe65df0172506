"""What a device says of its memory once a model is on it; the memory plan starts from this."""

from collections.abc import Callable

import attrs

__all__ = ["AskMemory", "DeviceMemory"]


@attrs.frozen(kw_only=True)
class DeviceMemory:
    """Of a device with its model's weights, for the largest step that the engine may submit."""

    free_bytes: int | None
    """Not in use by anybody, the model's weights already taken off; ``None``: it can't say."""
    weights_bytes: int
    step_bytes: int
    """Most that the temporaries of one step take at once."""
    unasked_share: float = 0.8
    """Of the free memory: most that the pools may take where nobody has said how much."""


AskMemory = Callable[[int, int, int], DeviceMemory]
"""Asked with the most rows and the most tokens of a step, and the most tokens of a sequence."""
