"""Whether an image is one of a model's states, and fits the row that is to load it.

An image comes from a file or from another process. It is looked at before anything is written, so
that a wrong one costs its own turn and nothing else.
"""

import math
from collections.abc import Mapping

import attrs

from kernel.state_image import StateImage
from kernel.step import StepRow

__all__ = ["ArrayKind", "image_fault"]


@attrs.frozen
class ArrayKind:
    """What an array of a model's states looks like."""

    dtype: str
    """As safetensors spells it."""
    itemsize: int
    shape: tuple[int, ...]
    """Without the second dimension, the positions, of what is kept by position."""
    by_position: bool = False

    def shape_at(self, positions: int) -> tuple[int, ...]:
        """The whole shape for so many kept positions."""
        return (self.shape[0], positions, *self.shape[1:]) if self.by_position else self.shape


def image_fault(
    row: StepRow, image: StateImage, kinds: Mapping[str, ArrayKind], page_size: int
) -> str | None:
    """Why an image can't be loaded into a row's slot and pages; ``None``: it can.

    Args:
        row: whose ``initial`` it is.
        image: of any origin.
        kinds: the arrays of the model's states, by name.
        page_size: of this engine, which may be another one than the image's.
    """
    position, first = image.position, image.first_position
    if position < 1 or position != row.position:
        return f"the image is of position {position}, its row begins at {row.position}"
    if not 0 <= first < position:
        return f"the image keeps positions {first} to {position}: none"
    if any(kind.by_position for kind in kinds.values()):
        begin = row.first_page * page_size
        if not first <= begin < position:
            return f"the image keeps positions {first} to {position}, its row {begin} and later"
        if row.first_page + len(row.pages) < -(-position // page_size):
            return f"{len(row.pages)} pages do not cover position {position}"
    if set(image.arrays) != set(kinds):
        return f"the image has arrays {sorted(image.arrays)}, the model's are {sorted(kinds)}"
    for name, kind in kinds.items():
        array, shape = image.arrays[name], kind.shape_at(position - first)
        if (array.dtype, array.shape) != (kind.dtype, shape):
            found = f"{array.dtype} {list(array.shape)}"
            return f"array {name!r} is {found}, the model's is {kind.dtype} {list(shape)}"
        if len(array.data) != math.prod(shape) * kind.itemsize:
            return f"array {name!r} has {len(array.data)} bytes, its shape asks for another number"
    return None
