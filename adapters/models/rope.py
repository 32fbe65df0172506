"""Rotary frequencies from config.json, old spelling (rope_theta, rope_scaling) and new.

``default``: Su et al. 2021. ``linear``: positions divided by a factor. ``llama3``: long waves
divided by it, short ones not, between them a blend (Llama 3.1). ``yarn``: Peng et al. 2023.
"""

import math
from collections.abc import Callable, Mapping

from adapters.models.config_reader import ConfigReader
from adapters.models.errors import UnsupportedRope
from adapters.ragged.spec import Rope

__all__ = ["read_rope"]

_THETA = 10_000.0


def read_rope(
    config: ConfigReader, head_dim: int, *, partial: float = 1.0, theta: float = _THETA
) -> Rope:
    """The rotary embedding that a configuration asks for.

    Args:
        config: with ``rope_parameters``, or ``rope_theta`` and ``rope_scaling``.
        head_dim: channels of a head.
        partial: share of them that is rotated, where the configuration doesn't say.
        theta: base of the wave lengths, where the configuration doesn't say.

    Raises:
        UnsupportedRope: a kind that isn't built here.
        ConfigError: both spellings are there and say different things.
    """
    scaling = _only_spelling(config)
    theta = scaling.number("rope_theta", config.number("rope_theta", theta))
    share = scaling.number("partial_rotary_factor", config.number("partial_rotary_factor", partial))
    width = int(head_dim * share)
    if width % 2 or not 0 < width <= head_dim:
        raise config.wrong("partial_rotary_factor", share, f"an even part of {head_dim} channels")
    kind = scaling.text("rope_type", scaling.text("type", "default"))
    make = _KINDS.get(kind)
    if make is None:
        known = ", ".join(sorted(_KINDS))
        raise UnsupportedRope(f"{scaling.where}: rope_type {kind!r} isn't served; known: {known}")
    plain = tuple(theta ** (-2 * i / width) for i in range(width // 2))
    return make(scaling, plain, theta, config)


def _only_spelling(config: ConfigReader) -> ConfigReader:
    """What says how to rotate: ``rope_parameters``, or ``rope_scaling`` as it was called before.

    Who lengthens a context by hand often adds the old one beside the new one, which would then
    be read past.
    """
    if not config.has("rope_parameters"):
        return config.sub("rope_scaling")
    new = config.sub("rope_parameters")
    of_layers = [name for name in new.values if name.endswith("_attention")]
    if of_layers:
        raise UnsupportedRope(
            f"{new.where}: {of_layers[0]}: a rotation for some layers isn't built"
        )
    if config.has("rope_scaling"):
        old = config.sub("rope_scaling")
        if not new.values:
            return old
        for name, value in old.values.items():
            if value != new.values.get("rope_type" if name == "type" else name):
                why = "left out, or say the same as rope_parameters"
                raise config.wrong("rope_scaling", dict(old.values), why)
    return new


def _default(
    _scaling: ConfigReader, plain: tuple[float, ...], _theta: float, _config: ConfigReader
) -> Rope:
    return Rope(plain)


def _linear(
    scaling: ConfigReader, plain: tuple[float, ...], _theta: float, _config: ConfigReader
) -> Rope:
    factor = scaling.number("factor")
    return Rope(tuple(frequency / factor for frequency in plain))


def _llama3(
    scaling: ConfigReader, plain: tuple[float, ...], _theta: float, _config: ConfigReader
) -> Rope:
    factor = scaling.number("factor")
    low, high = scaling.number("low_freq_factor"), scaling.number("high_freq_factor")
    length = scaling.integer("original_max_position_embeddings")

    def scaled(frequency: float) -> float:
        wave = 2 * math.pi / frequency
        if wave < length / high:
            return frequency
        if wave > length / low:
            return frequency / factor
        blend = (length / wave - low) / (high - low)
        return (1 - blend) * frequency / factor + blend * frequency

    return Rope(tuple(scaled(frequency) for frequency in plain))


def _yarn(
    scaling: ConfigReader, plain: tuple[float, ...], theta: float, config: ConfigReader
) -> Rope:
    longest = config.integer("max_position_embeddings", 2048)
    length = scaling.integer("original_max_position_embeddings", longest)
    factor = scaling.number("factor", longest / length)
    pairs = len(plain)

    def pair_that_turns(times: float) -> float:
        return pairs * math.log(length / (times * 2 * math.pi)) / math.log(theta)

    begin = pair_that_turns(scaling.number("beta_fast", 32.0))
    end = pair_that_turns(scaling.number("beta_slow", 1.0))
    if scaling.boolean("truncate", True):
        begin, end = math.floor(begin), math.ceil(end)
    begin, end = max(begin, 0), min(end, 2 * pairs - 1)
    if begin == end:
        end += 0.001  # a ramp, not a step

    def scaled(pair: int, frequency: float) -> float:
        ramp = min(1.0, max(0.0, (pair - begin) / (end - begin)))
        return frequency / factor * ramp + frequency * (1 - ramp)

    frequencies = tuple(scaled(pair, frequency) for pair, frequency in enumerate(plain))
    return Rope(frequencies, _yarn_factor(scaling, factor))


def _yarn_factor(scaling: ConfigReader, factor: float) -> float:
    if scaling.has("attention_factor"):
        return scaling.number("attention_factor")

    def sharpened(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    if scaling.has("mscale") and scaling.has("mscale_all_dim"):
        return sharpened(scaling.number("mscale")) / sharpened(scaling.number("mscale_all_dim"))
    return sharpened(1.0)


_Make = Callable[[ConfigReader, tuple[float, ...], float, ConfigReader], Rope]
_KINDS: Mapping[str, _Make] = {
    "default": _default,
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
}
