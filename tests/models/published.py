"""Published models as facts: keys of their config.json, some of their tensors, their sizes.

``published.json`` has them. Keys are spelled as on the hub, old spellings included; what no reader
asks for is left out of it. The sizes are what publishers, or programs that read the files, state;
of Bamba, Falcon-Mamba, Granite 350M and Mamba2-130M they state a rounded one, which ours rounds to.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

__all__ = ["PUBLISHED", "Published"]


def _shapes(values: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(shape) for name, shape in values.items()}


@attrs.frozen(kw_only=True)
class Published:
    """One model of the hub."""

    config: dict[str, Any]
    parameters: int
    """Numbers in all tensors of the file, drafting and vision left out."""
    state_mib: float
    """MiB of one sequence's state: the recurrence in 32 bits, inputs of the convolution in 16."""
    tensors: dict[str, tuple[int, ...]] = attrs.field(converter=_shapes)
    """Some of those in the file."""
    unused: dict[str, tuple[int, ...]] = attrs.field(
        factory=dict[str, tuple[int, ...]], converter=_shapes
    )
    """Some that are in the file and belong to something else."""


def _read() -> dict[str, Published]:
    text = Path(__file__).with_name("published.json").read_text(encoding="utf-8")
    return {name: Published(**facts) for name, facts in json.loads(text).items()}


PUBLISHED = _read()
