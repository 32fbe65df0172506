"""States as images: read out of a slot and pages of either place, and loaded into the device's.

Bytes are copied in pieces or by code that lets go of the interpreter: an image may be gigabytes,
and the event loop goes on beside it.
"""

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from adapters.image_check import ArrayKind
from adapters.ragged.arenas import Arenas
from kernel.state_image import ImageArray, StateImage
from kernel.step import StepRow
from ownership import NoSlot, SlotIndex

__all__ = ["array_kinds", "load_image", "read_image"]

_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
}
_WORDS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By bytes of a number: NumPy has no bfloat16, and bits are all that is copied."""
_PIECE_BYTES = 1 << 20
_KEYS, _VALUES = "keys", "values"


def array_kinds(arenas: Arenas) -> Mapping[str, ArrayKind]:
    """The arrays of an image of this model's states, by name."""
    kinds: dict[str, ArrayKind] = {}
    for name, tensor in arenas.states.tensors.items():
        kinds[name] = _kind(tensor, (tensor.shape[0], *tensor.shape[2:]))
    for name, tensor in ((_KEYS, arenas.pages.keys), (_VALUES, arenas.pages.values)):
        if tensor.shape[0]:
            shape = (tensor.shape[0], *tensor.shape[3:])
            kinds[name] = _kind(tensor, shape, by_position=True)
    return kinds


def _kind(tensor: Tensor, shape: tuple[int, ...], *, by_position: bool = False) -> ArrayKind:
    return ArrayKind(_DTYPES[tensor.dtype], tensor.dtype.itemsize, shape, by_position)


def read_image(
    arenas: Arenas,
    kinds: Mapping[str, ArrayKind],
    slot: SlotIndex | NoSlot,
    pages: Sequence[int],
    *,
    position: int,
    first_page: int,
) -> StateImage:
    """Read a state as it is; keys and values of positions below ``position``.

    Args:
        arenas: of the place where it is.
        kinds: of the model's images.
        slot: unused where the model keeps no recurrent state.
        pages: page table from ``first_page`` on.
        position: tokens that the state has absorbed.
        first_page: pages that were dropped.
    """
    first = first_page * arenas.pages.page_size if _KEYS in kinds else 0
    count = position - first
    arrays: dict[str, ImageArray] = {}
    for name, kind in kinds.items():
        if kind.by_position:
            tensor = arenas.pages.keys if name == _KEYS else arenas.pages.values
            parts = _positions(tensor, pages, count)
        else:
            parts = iter((arenas.states[name].select(1, _index(slot)),))
        arrays[name] = ImageArray(kind.dtype, kind.shape_at(count), _bytes(parts))
    return StateImage(position, arrays, first)


def _index(slot: SlotIndex | NoSlot) -> int:
    if isinstance(slot, NoSlot):
        raise TypeError("a row of a model with recurrent state has no slot")
    return slot


def _positions(tensor: Tensor, pages: Sequence[int], count: int) -> Iterator[Tensor]:
    """Layer by layer what ``count`` positions hold, in pieces: [positions, heads, width]."""
    size = tensor.shape[2]
    used = -(-count // size)
    if len(pages) < used:
        raise ValueError(f"{len(pages)} pages do not cover {count} positions")
    blocks = _blocks(tensor, pages[:used])
    for layer in tensor:
        left = count
        for at in blocks:
            yield layer.index_select(0, at).flatten(0, 1)[:left]
            left -= len(at) * size


def _blocks(tensor: Tensor, pages: Sequence[int]) -> list[Tensor]:
    """Pages of one layer that are copied at once: a larger temporary would be mapped afresh."""
    at = torch.tensor(pages, device=tensor.device)
    block = max(1, _PIECE_BYTES // max(1, tensor[0, 0].nbytes))
    return [at[start : start + block] for start in range(0, len(pages), block)]


def _bytes(parts: Iterable[Tensor]) -> bytes:
    """The numbers of these parts, one after another."""
    out = io.BytesIO()
    for part in parts:
        words = _words(part.cpu().contiguous()).reshape(-1)
        view = words.astype(words.dtype.newbyteorder("<"), copy=False).view(np.uint8).data
        for start in range(0, len(view), _PIECE_BYTES):
            out.write(view[start : start + _PIECE_BYTES])
    return out.getvalue()


def load_image(
    arenas: Arenas, kinds: Mapping[str, ArrayKind], row: StepRow, image: StateImage
) -> None:
    """Write an image, checked before, into a row's slot and pages of the device."""
    pages = arenas.pages
    for name, kind in kinds.items():
        source = _array(image.arrays[name], kind)
        if not kind.by_position:
            _fill(arenas.states[name].select(1, _index(row.slot)), source)
            continue
        dropped = row.first_page * pages.page_size - image.first_position
        _fill_pages(pages.keys if name == _KEYS else pages.values, row.pages, source[:, dropped:])


def _fill_pages(tensor: Tensor, pages: Sequence[int], source: npt.NDArray[np.int_]) -> None:
    """Write positions into pages; what is left of the last one is cleared."""
    count, size = source.shape[1], tensor.shape[2]
    blocks = _blocks(tensor, pages[: -(-count // size)])
    staged = torch.empty((len(blocks[0]), *tensor.shape[2:]), dtype=tensor.dtype)
    positions = staged.flatten(0, 1)
    for layer, numbers in zip(tensor, source, strict=True):
        start = 0
        for at in blocks:
            part = numbers[start : start + len(at) * size]
            start += len(at) * size
            _fill(positions[: len(part)], part)
            positions[len(part) :].zero_()
            layer.index_copy_(0, at, staged[: len(at)].to(tensor.device))


def _fill(tensor: Tensor, source: npt.NDArray[np.int_]) -> None:
    if tensor.device.type == "cpu":
        np.copyto(_words(tensor), source)
        return
    staged = torch.empty(tensor.shape, dtype=tensor.dtype)
    np.copyto(_words(staged), source)
    tensor.copy_(staged)


def _words(tensor: Tensor) -> npt.NDArray[np.int_]:
    """The bits of its numbers, in place."""
    words: npt.NDArray[np.int_] = tensor.view(_WORDS[tensor.dtype.itemsize]).numpy()
    return words


def _array(array: ImageArray, kind: ArrayKind) -> npt.NDArray[np.int_]:
    return np.frombuffer(array.data, dtype=f"<i{kind.itemsize}").reshape(array.shape)
