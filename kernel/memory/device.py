"""What a device says of its memory once a model is on it; the memory plan starts from this."""

from collections.abc import Callable

import attrs

__all__ = ["MOST_UNASKED", "AskMemory", "DeviceMemory"]

MOST_UNASKED = 0.8
"""Share of the free memory that nobody takes more of without having been told to."""


@attrs.frozen(kw_only=True)
class DeviceMemory:
    """Of a device with its model's weights, for the largest step that the engine may submit."""

    free_bytes: int | None
    """Not in use by anybody, the model's weights already taken off; ``None``: it can't say."""
    weights_bytes: int
    step_bytes: int
    """Most that the temporaries of one step take at once."""
    host_free_bytes: int | None = None
    """Of the host's memory, not in use by anybody, as much as host memory may be planned with: a
    device that pins it takes more than is asked for; ``None``: it can't say."""
    is_host: bool = False
    """The device computes in the host's memory: what its pools take isn't free for the host's."""
    unasked_share: float = MOST_UNASKED
    """Of the free memory: what a step and the pools may take where nobody has said how much; more,
    up to :data:`MOST_UNASKED`, if that is what one turn takes."""


AskMemory = Callable[[int, int, int], DeviceMemory]
"""Asked with the most rows and the most tokens of a step, and the most tokens of a sequence."""
