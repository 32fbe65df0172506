"""A state outside of all pools: bytes that own nothing, of which anyone may keep a copy.

What is read out of a claim is an image, and what a claim starts from may be one. It is independent
of slots and pages: keys and values are cut to the state's position, so that an engine with pages
of another size can load it.
"""

from collections.abc import Mapping

import attrs

__all__ = ["ImageArray", "StateImage"]


@attrs.frozen
class ImageArray:
    """One array, bit for bit."""

    dtype: str
    """As safetensors spells it: ``"F64"``, ``"F32"``, ``"BF16"``, ``"F16"``, ``"U8"``, ..."""
    shape: tuple[int, ...]
    data: bytes
    """In C order, little-endian."""


@attrs.frozen(eq=False)
class StateImage:
    """The state of one sequence at one position, as a value."""

    position: int
    """Tokens that it has absorbed, at least 1."""
    arrays: Mapping[str, ImageArray]
    """By the device's own names: recurrent state [layers, *shape] each; keys and values
    [layers, positions, heads, width] of the positions that are kept, the oldest first."""
    first_position: int = 0
    """Positions before this one are not in the key/value arrays: they were dropped."""

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""
        return sum(len(array.data) for array in self.arrays.values())
