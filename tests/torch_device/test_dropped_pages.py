"""Attention over what is left equals a mask over all of it, once the oldest pages are dropped."""

import math
import random
from collections.abc import Mapping, Sequence

import attrs
import pytest
import torch
from torch import Tensor

from adapters.models import reference
from adapters.models.hybrid import HybridConfig
from kernel.step import StepRow
from tests.torch_device.support import CONFIGS, PAGE_SIZE, Rig, Track, weights_of

LENGTH = 60
PAGED = ["hybrid", "attention-only"]


def windowed(
    name: str, tokens: Sequence[int], begins: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> Tensor:
    """The reference's logits, where each query sees positions from its own begin on."""

    def mixer(config: HybridConfig, own: Mapping[str, Tensor], x: Tensor) -> Tensor:
        length = x.shape[1]
        width, each = config.attn_head_dim, config.num_heads // config.num_kv_heads
        positions = torch.arange(length)

        def heads(part: str) -> Tensor:
            projected = x @ own[f"mixer.{part}.weight"].T
            return projected.view(1, length, -1, width).transpose(1, 2)

        query = reference.rotate(heads("q_proj"), positions, config.rope_theta)
        key = reference.rotate(heads("k_proj"), positions, config.rope_theta)
        key, value = (each_.repeat_interleave(each, dim=1) for each_ in (key, heads("v_proj")))
        sees = torch.ones(length, length, dtype=torch.bool).tril()
        sees &= positions[None] >= torch.tensor(begins)[:, None]
        scores = (query @ key.mT / math.sqrt(width)).masked_fill(~sees, float("-inf"))
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).reshape(1, length, -1)
        return mixed @ own["mixer.o_proj.weight"].T

    monkeypatch.setattr(reference, "attention_mixer", mixer)
    with_mask = reference.reference_logits(CONFIGS[name], weights_of(name), torch.tensor([tokens]))
    return with_mask[0]


@attrs.define(eq=False)
class Sliding:
    """A sequence that drops pages as it goes."""

    track: Track
    dropped: int = 0
    """Pages."""
    begins: list[int] = attrs.field(factory=list[int])
    """By position: the first one that its query sees."""

    def row(self, count: int) -> StepRow:
        row = self.track.row(count)
        self.begins += [self.dropped * PAGE_SIZE] * count
        pages = row.pages[self.dropped :]
        return attrs.evolve(row, pages=pages, first_page=self.dropped)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", PAGED)
def test_a_sequence_without_its_oldest_pages_equals_a_mask(
    name: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In chunks and token by token, dropping again and again, beside sequences that drop none.

    Dropped pages are full of NaN by then, so they are not merely masked.
    """
    rig, draw = Rig(name, slots=3), random.Random(seed)
    sequences = [Sliding(rig.sequence(LENGTH, seed=seed * 9 + number)) for number in range(3)]
    found: list[dict[int, Tensor]] = [{} for _ in sequences]
    while any(one.track.left for one in sequences):
        rows: list[StepRow] = []
        who: list[int] = []
        for number, one in enumerate(sequences):
            if one.track.left:
                who.append(number)
                rows.append(one.row(min(draw.choice((1, 1, 2, 5, 9)), one.track.left)))
        for at, logits in rig.logits(rows).items():
            one = sequences[who[at]]
            found[who[at]][one.track.position - 1] = logits
        for one in sequences[1:]:
            full = one.track.position // PAGE_SIZE
            if full - one.dropped > 2 and draw.random() < 0.4:
                drop = draw.randint(1, full - one.dropped - 1)
                gone = one.track.pages[one.dropped : one.dropped + drop]
                rig.arenas.pages.fill(gone, float("nan"))
                one.dropped += drop

    assert all(one.dropped for one in sequences[1:])
    for one, by_position in zip(sequences, found, strict=True):
        right = windowed(name, one.track.tokens, one.begins, monkeypatch)
        for position, logits in by_position.items():
            assert torch.allclose(logits, right[position], rtol=1e-9, atol=1e-9), position


@pytest.mark.parametrize("name", PAGED)
def test_without_a_drop_the_window_is_all_there_is(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reference of this file is that of all others then."""
    rig = Rig(name)
    track = rig.sequence(20, seed=1)
    rig.logits([track.row(20)])
    plain = reference.reference_logits(
        CONFIGS[name], weights_of(name), torch.tensor([track.tokens])
    )

    assert torch.equal(windowed(name, track.tokens, [0] * 20, monkeypatch), plain[0])


def test_a_window_far_beyond_the_models_length_is_cut_by_what_it_keeps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An endless session's position grows for ever; the passes of its steps don't shrink."""
    rig = Rig("attention-only")
    track = rig.sequence(12, seed=1)
    far = 1_000_000 * PAGE_SIZE
    row = attrs.evolve(track.row(12), position=far, first_page=far // PAGE_SIZE)
    (logits,) = rig.logits([row]).values()
    right = windowed("attention-only", track.tokens, [0] * 12, monkeypatch)[-1]

    assert torch.allclose(logits, right, rtol=1e-6, atol=1e-6), "rotations are relative"
