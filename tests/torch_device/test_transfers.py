"""A state that was moved is the same to the bit, wherever it has been, in every family."""

import random
import struct
from typing import Any

import attrs
import pytest
import torch

from adapters.ragged import images
from adapters.torch_device.prepare import StepRefused
from kernel.state_image import StateImage
from kernel.step import CopyOut, DeviceStep, ReadOut, RowFault, TransferStep
from ownership import Place
from tests.torch_device.moving import FAMILIES, Mover, State, same_bits

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
"""Eleven tokens: two full pages of four, and a tail."""
MORE = [8, 9, 7]


def begun(mover: Mover, positions: int = 20) -> State:
    """A state on the device that has absorbed the prompt."""
    state = mover.room(Place.DEVICE, positions)
    mover.absorb(state, PROMPT, "zeros")
    return state


def goes_on(mover: Mover, state: State) -> list[object]:
    """What it draws when it goes on in place, token by token."""
    return [mover.absorb(state, [token]) for token in MORE]


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_state_parked_and_brought_back_is_the_same_to_the_bit(family: str, dtype: str) -> None:
    """Slot, full pages and tail; the turn goes on as if it had never left."""
    mover = Mover(family, dtype)
    base = begun(mover)
    before = mover.bits(base)

    host = mover.park(base)
    assert same_bits(mover.bits(host), before)
    here, initial, copies = mover.start(host, 20)
    drawn = mover.absorb(here, MORE, initial, copies)

    assert same_bits(mover.bits(host), before)
    assert drawn == mover.absorb(base, MORE)
    assert same_bits(mover.bits(here), mover.bits(base))


@pytest.mark.parametrize(
    ("page_size", "from_host"),
    [
        (1, False),
        (7, True),
        *[
            pytest.param(*case, marks=pytest.mark.slow)
            for case in ((1, True), (4, False), (4, True), (7, False), (16, False), (16, True))
        ],
    ],
)
@pytest.mark.parametrize("family", FAMILIES)
def test_an_image_loads_into_pages_of_another_size(
    family: str, page_size: int, from_host: bool
) -> None:
    """Keys and values are cut to the position, and know no pages.

    Tokens are the same afterwards; sums over pages of another size may differ in the last bit.
    """
    mover = Mover(family)
    base = begun(mover)
    image = mover.image(mover.park(base) if from_host else base)
    other = Mover(family, page_size=page_size, seed=1)
    here = other.load(image, 20)

    other.absorb(here, (), image)

    assert image.position == len(PROMPT)
    assert same_bits(other.bits(here), mover.bits(base))
    assert goes_on(other, here) == goes_on(mover, base)


@pytest.mark.parametrize("first_page", [1, 2])
@pytest.mark.parametrize("family", ["hybrid", "attention only"])
def test_an_image_that_keeps_more_is_loaded_from_where_its_row_begins(
    family: str, first_page: int
) -> None:
    """An engine with a smaller window leaves the oldest pages out."""
    mover = Mover(family)
    base = begun(mover)
    image = mover.image(base)
    here = mover.load(image, 20, first_page)

    mover.absorb(here, (), image)

    dropped = first_page * mover.page_size
    loaded, whole = mover.bits(here), mover.bits(base)
    for name, bits in loaded.items():
        is_by_position = name in ("keys", "values")
        assert torch.equal(bits, whole[name][:, dropped:] if is_by_position else whole[name])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_an_image_of_a_loaded_image_is_the_same_image(family: str, dtype: str) -> None:
    """A row may load and do nothing else; it draws nothing."""
    mover = Mover(family, dtype)
    image = mover.image(begun(mover))
    here = mover.load(image, 20)

    assert mover.absorb(here, (), image) is None
    again = mover.image(here)

    assert again.arrays == image.arrays
    assert (again.position, again.first_position) == (image.position, 0)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_image_is_read_and_loaded_in_pieces(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long one: neither the event loop nor the allocator has to do with all of it at once."""
    mover = Mover(family)
    base = begun(mover)
    whole = mover.image(base)
    monkeypatch.setattr(images, "_PIECE_BYTES", 600)

    image = mover.image(base)
    here = mover.load(image, 20)
    mover.absorb(here, (), image)

    assert image.arrays == whole.arrays
    assert same_bits(mover.bits(here), mover.bits(base))


def test_an_image_names_types_as_safetensors_does() -> None:
    """Its arrays have the shapes that the contract says; the numbers are those of the arenas."""
    mover = Mover("hybrid", "bfloat16")
    base = begun(mover)
    image = mover.image(base)
    found = {name: (array.dtype, array.shape) for name, array in image.arrays.items()}

    assert found == {
        "conv": ("F32", (2, 3, 32 + 16)),
        "ssm": ("F32", (2, 4, 8, 8)),
        "keys": ("BF16", (1, len(PROMPT), 2, 8)),
        "values": ("BF16", (1, len(PROMPT), 2, 8)),
    }
    keys = torch.frombuffer(bytearray(image.arrays["keys"].data), dtype=torch.bfloat16)
    pages = mover.arenas.pages.keys[:, torch.tensor(base.pages)].flatten(1, 2)
    assert torch.equal(keys.view(1, -1, 2, 8), pages[:, : len(PROMPT)])
    assert image.nbytes == sum(len(array.data) for array in image.arrays.values())


def _with(image: StateImage, name: str, **changes: Any) -> StateImage:
    arrays = {**image.arrays, name: attrs.evolve(image.arrays[name], **changes)}
    return attrs.evolve(image, arrays=arrays)


def _damaged(image: StateImage) -> dict[str, StateImage]:
    ssm = image.arrays["ssm"]
    less = {name: array for name, array in image.arrays.items() if name != "conv"}
    return {
        "arrays": attrs.evolve(image, arrays=less),
        "begins at": attrs.evolve(image, position=image.position + 1),
        "F32": _with(image, "ssm", dtype="F32"),
        "[2, 4, 64]": _with(image, "ssm", shape=(2, 4, 64)),
        "bytes": _with(image, "ssm", data=ssm.data[:-1]),
        "keeps positions": attrs.evolve(image, first_position=8),
    }


@pytest.mark.parametrize("told", _damaged(Mover("hybrid").image(begun(Mover("hybrid")))))
def test_an_image_of_something_else_costs_its_own_row(told: str) -> None:
    """It may come from a file; the other rows of the step are computed as if it weren't there."""
    mover = Mover("hybrid")
    base = begun(mover)
    image = _damaged(mover.image(base))[told]
    here = mover.load(image, 20)
    here.position = len(PROMPT)
    rows = (mover.row(here, MORE, image), mover.row(base, MORE))

    fault, drawn = mover.steps.run(DeviceStep(0, rows))

    assert isinstance(fault, RowFault)
    assert fault.is_undefined
    assert told in fault.why
    again = Mover("hybrid")
    assert drawn == again.absorb(begun(again), MORE)
    nothing = mover.bits(attrs.evolve(here, position=8))
    assert all((bits == bits.flatten()[0]).all() for bits in nothing.values()), "it was written"


def test_a_page_table_that_is_too_short_for_its_image_costs_its_own_row() -> None:
    """Nothing is written beside it."""
    mover = Mover("attention only")
    image = mover.image(begun(mover))
    here = mover.load(image, 8)

    (fault,) = mover.steps.run(DeviceStep(0, (mover.row(here, (), image),)))

    assert isinstance(fault, RowFault)
    assert "2 pages do not cover" in fault.why


def test_host_memory_that_was_given_back_is_poisoned() -> None:
    """A turn that starts from it would draw from NaN."""
    mover = Mover("hybrid")
    host = mover.park(begun(mover))

    mover.give_back(host)

    here, initial, copies = mover.start(host, 20)
    mover.absorb(here, MORE, initial, copies)
    assert mover.arenas.states["ssm"][:, slot_of(here)].isnan().any()


def slot_of(state: State) -> int:
    assert isinstance(state.slot, int)
    return state.slot


def test_a_transfer_of_two_states_into_one_slot_is_refused() -> None:
    """A race would be silent otherwise."""
    mover = Mover("hybrid")
    base = begun(mover)
    row = mover.copy_out(base, mover.room(Place.HOST, 20))

    with pytest.raises(StepRefused, match="same slot or page"):
        mover.transfers.run(TransferStep(1, (row, row)))


def test_a_step_with_nothing_to_do_for_a_row_is_refused() -> None:
    """Only a load may be without tokens."""
    mover = Mover("hybrid")

    with pytest.raises(StepRefused, match="no tokens"):
        mover.absorb(mover.room(Place.DEVICE, 20), (), "zeros")


@pytest.mark.parametrize("family", FAMILIES)
def test_any_number_of_moves_leaves_the_state_as_it_is(family: str) -> None:
    """To the host, into an image, back, from one slot to another, and on."""
    mover, still = Mover(family), Mover(family)
    draw = random.Random(4)
    state, right = begun(mover, 40), begun(still, 40)
    for token in (7, 2, 9, 4, 1, 8):
        way = draw.choice(("host", "image"))
        if way == "host":
            host = mover.park(state)
            here, initial, copies = mover.start(host, 40)
        else:
            image = mover.image(state)
            here, initial, copies = mover.load(image, 40), image, []
            host = None
        assert mover.absorb(here, [token], initial, copies) == still.absorb(right, [token])
        mover.give_back(state)
        if host is not None:
            mover.give_back(host)
        state = here

    assert same_bits(mover.bits(state), still.bits(right))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_says_that_it_slides_and_what_its_states_are_of(family: str) -> None:
    """Rotary embeddings, or no positions at all: scores depend on distances at most."""
    model = Mover(family, "bfloat16").model

    assert model.slides
    assert (model.dtype, model.state_dtype) == ("bfloat16", "float32")


def test_names_of_states_and_of_keys_never_meet() -> None:
    """An image holds both by name."""
    for family in FAMILIES:
        assert not {"keys", "values"} & set(Mover(family).arenas.states.tensors), family


def test_the_bytes_of_an_image_are_little_endian() -> None:
    """Whatever this machine's order is; a file may come from another one."""
    mover = Mover("hybrid", "float32")
    base = begun(mover)
    numbers = mover.arenas.states["ssm"].select(1, slot_of(base)).flatten()
    data = mover.image(base).arrays["ssm"].data

    assert data == b"".join(struct.pack("<f", float(number)) for number in numbers)


class Stream:
    """Stands for an accelerator's: what it was given is done when it is synchronised."""

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        self.times = 0

    def synchronize(self) -> None:
        self.times += 1


@pytest.mark.parametrize("fails", [False, True])
def test_a_transfer_is_reported_when_nothing_of_it_is_under_way(fails: bool) -> None:
    """One that fails at its second row, too: its first row's copy still writes host memory."""
    mover = Mover("hybrid")
    base = begun(mover)
    stream = Stream()
    setattr(mover.transfers, "_stream", stream)
    copy = CopyOut(base.slot, mover.room(Place.HOST, 4).slot, ())
    read = ReadOut(Place.DEVICE, base.slot, () if fails else tuple(base.pages), base.position, 0)
    step = TransferStep(1, (copy, read))

    if fails:
        with pytest.raises(ValueError, match="do not cover"):
            mover.transfers.run(step)
    else:
        mover.transfers.run(step)
    assert stream.times == 1
