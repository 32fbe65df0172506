"""Rotary embeddings from a GGUF file's metadata, as ``rope_parameters`` of a config.json."""

import math
from collections.abc import Sequence

from adapters.models.errors import UnsupportedRope
from adapters.models.gguf.metadata import Metadata

__all__ = ["rope_config"]

_FREQUENCIES = "rope_freqs.weight"
_THETA = 10_000.0
_LOW, _HIGH = 1.0, 4.0
"""Of every Llama 3 model; the file has the factors alone."""
_LENGTH = 8192
_EXACT = 1e-4
_YARN = {
    "rope.scaling.yarn_beta_fast": "beta_fast",
    "rope.scaling.yarn_beta_slow": "beta_slow",
    "rope.scaling.attn_factor": "attention_factor",
}


def rope_config(metadata: Metadata, head_dim: int) -> dict[str, object]:
    """Base, scaling, and the part of a head that is rotated.

    Raises:
        UnsupportedRope: a scaling that isn't built here.
    """
    theta = metadata.number("rope.freq_base", _THETA)
    rotated = metadata.integer("rope.dimension_count", head_dim)
    found: dict[str, object] = {
        "rope_type": "default",
        "rope_theta": theta,
        # Always said: some families rotate half a head where their configuration doesn't say.
        "partial_rotary_factor": rotated / head_dim if head_dim else 1.0,
    }
    if metadata.has_tensor(_FREQUENCIES):
        found |= _llama3(metadata, theta)
    else:
        found |= _scaling(metadata)
    return {"rope_parameters": found}


def _scaling(metadata: Metadata) -> dict[str, object]:
    if not metadata.has("rope.scaling.type"):
        return {}
    kind = metadata.text("rope.scaling.type")
    if kind == "none":
        return {}
    scaling: dict[str, object] = {
        "rope_type": kind,
        "factor": metadata.number("rope.scaling.factor", 1.0),
    }
    if kind == "linear":
        return scaling
    if kind == "yarn":
        length = metadata.integer("rope.scaling.original_context_length")
        numbers = {name: metadata.number(key) for key, name in _YARN.items() if metadata.has(key)}
        return {**scaling, **numbers, "original_max_position_embeddings": length}
    raise UnsupportedRope(f"{metadata.where}: rope.scaling.type {kind!r} isn't read")


def _llama3(metadata: Metadata, theta: float) -> dict[str, object]:
    """The settings that give the factors by which each frequency is divided.

    Raises:
        UnsupportedRope: no settings of Llama 3 give them.
    """
    factors = metadata.numbers_of(_FREQUENCIES)
    most = max(factors)
    if most == 1:
        return {}
    waves = [2 * math.pi * theta ** (pair / len(factors)) for pair in range(len(factors))]
    length = _length(factors, waves, most)
    for factor, wave in zip(factors, waves, strict=True):
        blend = min(1.0, max(0.0, (length / wave - _LOW) / (_HIGH - _LOW)))
        if abs(factor * ((1 - blend) / most + blend) - 1) > _EXACT:
            raise UnsupportedRope(
                f"{metadata.where}: {_FREQUENCIES} isn't a scaling of Llama 3's kind; use the"
                " model's own directory"
            )
    return {
        "rope_type": "llama3",
        "factor": most,
        "low_freq_factor": _LOW,
        "high_freq_factor": _HIGH,
        "original_max_position_embeddings": length,
    }


def _length(factors: Sequence[float], waves: Sequence[float], most: float) -> int:
    """The length of the original training, from a pair that is neither scaled wholly nor not."""
    for factor, wave in zip(factors, waves, strict=True):
        blend = (1 / factor - 1 / most) / (1 - 1 / most)
        if _EXACT < blend < 1 - _EXACT:
            return round(wave * (blend * (_HIGH - _LOW) + _LOW))
    return _LENGTH
