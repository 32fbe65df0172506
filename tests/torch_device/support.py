"""A device with arenas full of NaN and sequences on it, each held to the reference model."""

import random
from collections.abc import Sequence
from functools import cache

import attrs
import torch
from torch import Tensor

from adapters.models.config_reader import ConfigReader
from adapters.models.hybrid import HybridConfig
from adapters.models.reference import reference_logits
from adapters.models.registry import check_model
from adapters.models.store import MemoryStore
from adapters.models.weights import random_weights
from adapters.ragged.spec import ModelShape
from adapters.torch_device import TorchDevice
from adapters.torch_device.precision import choose_precision
from kernel.step import (
    CopyOf,
    DeviceLimits,
    DeviceStep,
    InitialState,
    PageCopy,
    RowSampling,
    StepRow,
)
from ownership import NO_SLOT, PageIndex, SlotIndex

PAGE_SIZE = 4
GREEDY = RowSampling(temperature=0.0, top_k=0, top_p=1.0, key=0, index=0)

_SMALL = HybridConfig(
    vocab_size=40,
    hidden_size=16,
    layer_types=("mamba2", "attention", "mamba2"),
    intermediate_size=24,
    state_size=8,
    head_dim=8,
    chunk_size=8,
    num_heads=4,
    num_kv_heads=2,
    attn_head_dim=8,
    max_model_len=256,
)
CONFIGS = {
    "hybrid": _SMALL,
    "grouped": attrs.evolve(_SMALL, n_groups=2, intermediate_size=0, tie_embeddings=False),
    "attention-only": attrs.evolve(_SMALL, layer_types=("attention", "attention"), num_kv_heads=4),
    "recurrent-only": attrs.evolve(_SMALL, layer_types=("mamba2", "mamba2"), conv_kernel=2),
}


@cache
def weights_of(name: str) -> dict[str, Tensor]:
    """Random weights, with logits and gates large enough for a mistake to show."""
    weights = random_weights(CONFIGS[name], 7, torch.float64)
    generator = torch.Generator().manual_seed(8)
    for key, tensor in weights.items():
        if key.endswith(("norm.weight", ".D")):
            tensor.add_(torch.rand(tensor.shape, generator=generator, dtype=torch.float64))
    weights["embed.weight"] *= 50
    return weights


@cache
def shape_of(name: str) -> ModelShape:
    """What the model needs of memory and layout, worked out without reading a tensor."""
    config = ConfigReader(CONFIGS[name].to_dict())
    precision = choose_precision("float32", torch.device("cpu"))
    return check_model(config, MemoryStore(weights_of(name)), precision)[0].shape


@cache
def expected(name: str, tokens: tuple[int, ...]) -> Tensor:
    """The reference model's logits after each token: [tokens, vocabulary] float64."""
    return reference_logits(CONFIGS[name], weights_of(name), torch.tensor([tokens]))[0]


@attrs.define(eq=False)
class Track:
    """One sequence on the device: its whole text, and how much of it is absorbed."""

    tokens: tuple[int, ...]
    slot: SlotIndex
    pages: list[PageIndex]
    position: int = 0
    initial: InitialState = "zeros"
    tail_copy: PageCopy | None = None

    def row(self, count: int, sampling: RowSampling | None = GREEDY) -> StepRow:
        """Absorb the next ``count`` tokens; call once per step."""
        row = StepRow(
            slot=self.slot,
            initial=self.initial,
            position=self.position,
            tokens=self.tokens[self.position : self.position + count],
            pages=self.pages,
            tail_copy=self.tail_copy,
            sampling=sampling,
        )
        self.position += count
        self.initial, self.tail_copy = "kept", None
        return row

    @property
    def left(self) -> int:
        return len(self.tokens) - self.position


class Rig:
    """A small device; whatever the arenas held before is NaN."""

    def __init__(self, name: str = "hybrid", dtype: str = "float64", *, slots: int = 5) -> None:
        self.name = name
        self.config = CONFIGS[name]
        self.device = TorchDevice.of_weights(
            self.config.to_dict(), weights_of(name), dtype=dtype, num_threads=1, poison=True
        )
        self.device.allocate(
            DeviceLimits(
                num_slots=slots, num_pages=60, page_size=PAGE_SIZE, max_rows=8, max_step_tokens=99
            )
        )
        self.arenas = self.device.arenas
        self.arenas.states.fill(range(slots), float("nan"))
        self.arenas.pages.fill(range(60), float("nan"))
        self.runner = self.device.runner()
        self._slots = [SlotIndex(slot) for slot in range(slots)]
        self._pages = [PageIndex(page) for page in range(60)]
        random.Random(3).shuffle(self._pages)

    def sequence(self, length: int, seed: int) -> Track:
        """A new sequence with a slot and pages that nobody else has."""
        draw = random.Random(seed)
        tokens = tuple(draw.randrange(self.config.vocab_size) for _ in range(length))
        pages = [self._pages.pop() for _ in range(-(-length // PAGE_SIZE) + 1)]
        return self._new(tokens, pages)

    def fork(self, base: Track, length: int, seed: int) -> Track:
        """A sequence that goes on from ``base`` in its own way; full pages are shared."""
        other = self.sequence(length, seed)
        other.tokens = base.tokens[: base.position] + other.tokens
        full, tail = divmod(base.position, PAGE_SIZE)
        if tail and self.config.attention_layers:
            other.tail_copy = PageCopy(source=base.pages[full], target=other.pages[0])
        other.pages = base.pages[:full] + other.pages
        other.position, other.initial = base.position, CopyOf(base.slot)
        return other

    def _new(self, tokens: tuple[int, ...], pages: list[PageIndex]) -> Track:
        return Track(tokens=tokens, slot=self._slots.pop(), pages=pages)

    def give_back(self, sequence: Track) -> DeviceStep:
        """Free slot and pages: the step to run next carries them."""
        self._slots.append(sequence.slot)
        self._pages.extend(sequence.pages)
        return DeviceStep(
            step=0, rows=[], freed_slots=[sequence.slot], freed_pages=list(sequence.pages)
        )

    def logits(self, rows: Sequence[StepRow], step: DeviceStep | None = None) -> dict[int, Tensor]:
        """Run one step; the logits of each row that samples."""
        step = attrs.evolve(step or DeviceStep(step=0, rows=[]), rows=self.shape(rows))
        found: dict[int, Tensor] = {}
        with torch.inference_mode():
            for sampled, logits in self.runner.forward(step):
                found |= {row: logits[at].double() for at, (row, _) in enumerate(sampled)}
        return found

    def shape(self, rows: Sequence[StepRow]) -> list[StepRow]:
        """Rows as the kernel makes them for this model: no slot or no pages where it has none."""
        slots, pages = self.config.mamba_layers, self.config.attention_layers
        return [
            attrs.evolve(row, slot=row.slot if slots else NO_SLOT, pages=row.pages if pages else ())
            for row in rows
        ]

    def worst(self, sequences: Sequence[Track], found: dict[int, Tensor]) -> float:
        """Largest difference from the reference, relative to the largest logit."""
        worst = 0.0
        for row, logits in found.items():
            sequence = sequences[row]
            right = expected(self.name, sequence.tokens)[sequence.position - 1]
            worst = max(worst, float(((logits - right).abs().max() / right.abs().max()).item()))
            assert torch.isfinite(logits).all()
        return worst
