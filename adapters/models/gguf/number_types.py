"""The ``gguf`` package: the number types of GGUF files, and how blocks of them are undone.

It is an extra, and is imported when the first file is opened.
"""

from collections.abc import Callable, Mapping

import attrs
import numpy as np
from numpy.typing import NDArray

from adapters.models.gguf.errors import GgufNotInstalled

__all__ = ["Bytes", "NumberType", "number_types"]

Bytes = NDArray[np.uint8]


@attrs.frozen(eq=False)
class NumberType:
    """How one kind of number lies in a file: in blocks of a fixed size."""

    name: str
    """``"F32"``, ``"BF16"``, ``"Q4_K"``, ..."""
    block_numbers: int
    block_bytes: int
    undo: Callable[[Bytes], NDArray[np.float32]]
    """Bytes of whole blocks to numbers; raises ``NotImplementedError`` for types it lacks."""

    def bytes_of(self, numbers: int) -> int:
        """On disk; ``numbers`` fills whole blocks."""
        return numbers // self.block_numbers * self.block_bytes


def number_types() -> Mapping[int, NumberType]:
    """Number types by their ids in files.

    Raises:
        GgufNotInstalled: the package isn't there.
    """
    try:
        from gguf import constants, quants  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise GgufNotInstalled(
            f"reading GGUF files needs the gguf package ({error}): pip install 'tenure[gguf]'"
        ) from error

    def made(kind: constants.GGMLQuantizationType) -> NumberType:
        def undo(data: Bytes) -> NDArray[np.float32]:
            numbers: NDArray[np.float32] = quants.dequantize(data, kind)
            return numbers

        return NumberType(kind.name, *constants.GGML_QUANT_SIZES[kind], undo)

    return {kind.value: made(kind) for kind in constants.GGML_QUANT_SIZES}
