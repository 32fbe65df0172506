"""What images take that sessions keep in host memory, outside of all pools.

A session that was brought in from elsewhere keeps its state as an image until its next turn is
committed, and a fork of it keeps the same one. Nobody can say how many come before the first of
them takes a turn, so their bytes are counted and bounded here. An image that finds no room is left
to the store, or to the log, which says the same.
"""

from collections import Counter
from typing import Final, final

from kernel.state_image import StateImage

__all__ = ["MAX_IMAGE_BYTES", "ImageShelf"]

MAX_IMAGE_BYTES: Final = 1 << 30
"""Most bytes of images in each place that is no pool: kept by sessions, on their way to the disk,
read from it."""


@final
class ImageShelf:
    """Counts the images of one engine's sessions; an image counts once, however many keep it."""

    __slots__ = ("_keepers", "max_bytes", "nbytes")

    def __init__(self, max_bytes: int = MAX_IMAGE_BYTES) -> None:
        self.max_bytes = max_bytes
        self.nbytes = 0
        self._keepers: Counter[StateImage] = Counter()

    def keep(self, image: StateImage) -> bool:
        """Count one more session that keeps an image; False: there is no room for it."""
        if image not in self._keepers:
            if self.nbytes + image.nbytes > self.max_bytes:
                return False
            self.nbytes += image.nbytes
        self._keepers[image] += 1
        return True

    def let_go(self, image: StateImage) -> None:
        """Count one session less that keeps an image.

        Raises:
            KeyError: nobody keeps it.
        """
        if image not in self._keepers:
            raise KeyError("nobody keeps this image")
        self._keepers[image] -= 1
        if not self._keepers[image]:
            del self._keepers[image]
            self.nbytes -= image.nbytes
