"""One sequence on a small device of any family, moved between the places and out of both."""

import random
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import attrs
import torch
from torch import Tensor

from adapters.models.config_reader import ConfigReader
from adapters.models.registry import outline_model
from adapters.torch_device import TorchDevice
from adapters.torch_device.precision import choose_precision
from kernel.state_image import StateImage
from kernel.step import (
    CopyOf,
    CopyOut,
    DeviceLimits,
    DeviceStep,
    InitialState,
    PageCopy,
    ReadOut,
    RowOutcome,
    StepRow,
    TransferRow,
    TransferStep,
)
from ownership import NO_SLOT, NoSlot, PageIndex, Place, SlotIndex
from tests.models.tiny import RECURRENT, config_of
from tests.torch_device.support import CONFIGS, GREEDY, weights_of

SLOTS, PAGES, HOST_SLOTS, HOST_PAGES = 4, 40, 3, 30
_DELTA_NET = {
    "model_type": "qwen3_next",
    "vocab_size": 32,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 6,
    "linear_value_head_dim": 10,
    "linear_conv_kernel_dim": 4,
    "mlp_only_layers": [0, 1, 2],
    "num_experts": 0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "mamba2": RECURRENT,
    "hybrid": CONFIGS["hybrid"].to_dict(),
    "gated delta net": _DELTA_NET,
    "attention only": config_of(),
}


@cache
def random_weights(family: str) -> Mapping[str, Tensor]:
    """Small random numbers, by the names that the family gives its tensors."""
    if family == "hybrid":
        return weights_of("hybrid")
    precision = choose_precision("float64", torch.device("cpu"))
    _, asked = outline_model(ConfigReader(FAMILIES[family]), precision)
    draw = torch.Generator().manual_seed(5)
    return {
        name: torch.randn(shape, generator=draw, dtype=torch.float64) * 0.3
        for name, shape in asked.shapes.items()
    }


@attrs.define(eq=False)
class State:
    """Where a sequence's state is."""

    place: Place
    slot: SlotIndex | NoSlot
    pages: list[PageIndex]
    position: int = 0
    first_page: int = 0


class Mover:
    """A device full of NaN, and the copies that the kernel would ask for."""

    def __init__(
        self, family: str, dtype: str = "float64", *, page_size: int = 4, seed: int = 0
    ) -> None:
        self.device = TorchDevice.of_weights(
            FAMILIES[family], random_weights(family), dtype=dtype, num_threads=1, poison=True
        )
        self.device.allocate(DeviceLimits(SLOTS, PAGES, page_size, 8, 999, HOST_SLOTS, HOST_PAGES))
        self.model = self.device.model
        self.page_size = page_size
        self.arenas = self.device.arenas
        nan = float("nan")
        self.arenas.states.fill(range(SLOTS), nan)
        self.arenas.pages.fill(range(PAGES), nan)
        assert self.arenas.host is not None
        self.arenas.host.states.fill(range(HOST_SLOTS), nan)
        self.arenas.host.pages.fill(range(HOST_PAGES), nan)
        self.steps, self.transfers = self.device.runner(), self.device.transfer_runner()
        draw = random.Random(seed)
        self._free = {
            Place.DEVICE: (draw.sample(range(SLOTS), SLOTS), draw.sample(range(PAGES), PAGES)),
            Place.HOST: (
                draw.sample(range(HOST_SLOTS), HOST_SLOTS),
                draw.sample(range(HOST_PAGES), HOST_PAGES),
            ),
        }

    def room(self, place: Place, positions: int, first_page: int = 0) -> State:
        """A slot and pages that nobody has."""
        slots, pages = self._free[place]
        count = -(-positions // self.page_size) - first_page if self.model.uses_pages else 0
        slot = SlotIndex(slots.pop()) if self.model.uses_slots else NO_SLOT
        taken = [PageIndex(pages.pop()) for _ in range(count)]
        return State(place, slot, taken, first_page=first_page)

    def absorb(
        self,
        state: State,
        tokens: Sequence[int],
        initial: InitialState = "kept",
        copies: Sequence[PageCopy] = (),
    ) -> RowOutcome:
        """One row of one step, which draws a token."""
        row = self.row(state, tokens, initial, copies)
        (outcome,) = self.steps.run(DeviceStep(0, (row,)))
        state.position += len(tokens)
        return outcome

    def row(
        self,
        state: State,
        tokens: Sequence[int],
        initial: InitialState = "kept",
        copies: Sequence[PageCopy] = (),
    ) -> StepRow:
        return StepRow(
            slot=state.slot,
            initial=initial if self.model.uses_slots or isinstance(initial, StateImage) else "kept",
            position=state.position,
            tokens=tuple(tokens),
            pages=tuple(state.pages),
            tail_copy=None,
            sampling=GREEDY if tokens else None,
            page_copies=tuple(copies),
            first_page=state.first_page,
        )

    def park(self, state: State) -> State:
        """A copy of a state in host memory, by a transfer."""
        there = self.room(Place.HOST, state.position, state.first_page)
        there.position = state.position
        self.transfers.run(TransferStep(1, (self.copy_out(state, there),)))
        return there

    def copy_out(self, state: State, there: State) -> TransferRow:
        return CopyOut(state.slot, there.slot, _pairs(state, there))

    def start(self, base: State, positions: int) -> tuple[State, InitialState, list[PageCopy]]:
        """What a turn that starts from a base in host memory asks for: slot and pages, copied."""
        here = self.room(Place.DEVICE, positions, base.first_page)
        here.position = base.position
        initial: InitialState = "kept"
        if not isinstance(base.slot, NoSlot):
            initial = CopyOf(base.slot, base.place)
        return here, initial, _pairs(base, here)

    def image(self, state: State) -> StateImage:
        """What a state is, read out of where it is."""
        row = ReadOut(state.place, state.slot, state.pages, state.position, state.first_page)
        (image,) = self.transfers.run(TransferStep(2, (row,)))
        assert image is not None
        return image

    def load(self, image: StateImage, positions: int, first_page: int = 0) -> State:
        """Slot and pages for a row that starts from an image."""
        here = self.room(Place.DEVICE, positions, first_page)
        here.position = image.position
        return here

    def give_back(self, state: State) -> None:
        """Its slot and pages are free; the next step or transfer poisons them."""
        slots, pages = self._free[state.place]
        taken = [state.slot] if not isinstance(state.slot, NoSlot) else []
        slots[:0], pages[:0] = taken, state.pages
        if state.place is Place.HOST:
            self.transfers.run(TransferStep(9, (), taken, state.pages))
        else:
            self.steps.run(DeviceStep(9, (), taken, state.pages))

    def bits(self, state: State) -> dict[str, Tensor]:
        """Everything that a state holds, as whole numbers."""
        arenas = self.arenas.at(state.place)
        found = {
            name: tensor.select(1, state.slot)
            for name, tensor in arenas.states.tensors.items()
            if not isinstance(state.slot, NoSlot)
        }
        count = state.position - state.first_page * self.page_size
        for name, tensor in (("keys", arenas.pages.keys), ("values", arenas.pages.values)):
            if state.pages:
                whole = tensor[:, torch.tensor(state.pages)].flatten(1, 2)
                found[name] = whole[:, :count]
        words = {2: torch.int16, 4: torch.int32, 8: torch.int64}
        return {
            name: each.contiguous().view(words[each.dtype.itemsize]) for name, each in found.items()
        }


def _pairs(source: State, target: State) -> list[PageCopy]:
    return [
        PageCopy(one, other, source.place)
        for one, other in zip(source.pages, target.pages, strict=False)
    ]


def same_bits(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    """Whether two states are identical, and not merely close."""
    return one.keys() == other.keys() and all(
        torch.equal(each, other[name]) for name, each in one.items()
    )
