"""One tiny model of a family: the settings of its configuration, and how long its prompts are."""

from collections.abc import Mapping
from typing import Any

import attrs

__all__ = ["VOCABULARY", "Case", "cases"]

VOCABULARY = 97
"""A prime: no product of sizes is it by chance."""


@attrs.frozen
class Case:
    """A shape of a family. Sizes differ from each other, so that a mix-up can't go unseen."""

    family: str
    """The ``model_type`` that transformers makes it from."""
    name: str
    settings: Mapping[str, Any]
    prompt: int = 23
    """Tokens of its prompt: several chunks of the scan, the last one cut short."""

    gain: float = 1.1
    """Of its matrices: how much larger what comes out of a product is than what goes in."""

    @property
    def key(self) -> str:
        return f"{self.family}:{self.name}"


def cases(
    family: str,
    common: Mapping[str, Any],
    shapes: Mapping[str, Mapping[str, Any]],
    *,
    gain: float = 1.1,
) -> tuple[Case, ...]:
    """The shapes of one family over what they have in common."""
    everywhere = {"vocab_size": VOCABULARY, "max_position_embeddings": 256}
    return tuple(
        Case(family, name, everywhere | dict(common) | dict(shape), gain=gain)
        for name, shape in shapes.items()
    )
