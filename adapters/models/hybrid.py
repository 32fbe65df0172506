"""The hybrid family: Mamba-2 layers with an attention layer among every few of them.

A layer is ``x + mixer(norm(x))`` and, where ``intermediate_size`` isn't 0, then
``x + mlp(mlp_norm(x))``. The Mamba-2 mixer has the layout of Dao and Gu (2024,
https://arxiv.org/abs/2405.21060) as ``transformers`` implements it: one input projection gives
``z | x B C | dt``; a short causal convolution and SiLU over ``x B C``; the scan; a gated RMSNorm
per group; an output projection. Attention is grouped-query with rotary embeddings (rotate-half).
This module says what a configuration is and which tensors it needs; nothing here computes.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

import attrs

from adapters.models.config_reader import CONFIG_FILE, ConfigReader
from adapters.models.errors import ConfigError

__all__ = ["MODEL_TYPE", "HybridConfig", "LayerType", "parameter_shapes"]

MODEL_TYPE = "tenure_hybrid"
LayerType = Literal["mamba2", "attention"]

_WHOLE_NUMBERS = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "state_size",
    "head_dim",
    "expand",
    "n_groups",
    "conv_kernel",
    "chunk_size",
    "num_heads",
    "num_kv_heads",
    "attn_head_dim",
    "max_model_len",
)
_FRACTIONS = ("rope_theta", "norm_eps")


def _layers(value: object) -> tuple[LayerType, ...]:
    """Lists come out of JSON; the configuration itself holds a tuple."""
    if not isinstance(value, (list, tuple)):
        raise ConfigError(f"layer_types must be a list of names, not {value!r}")
    names = list(cast(list[object], value))
    for name in names:
        if name not in ("mamba2", "attention"):
            raise ConfigError(f"layer_types: unknown layer {name!r}; use 'mamba2' or 'attention'")
    return cast(tuple[LayerType, ...], tuple(names))


def _ids(value: object) -> tuple[int, ...]:
    if not isinstance(value, (list, tuple)):
        raise ConfigError(f"eos_token_ids must be a list of token ids, not {value!r}")
    ids = list(cast(list[object], value))
    if not all(type(item) is int for item in ids):
        raise ConfigError(f"eos_token_ids must be a list of token ids, not {value!r}")
    return tuple(cast(list[int], ids))


@attrs.frozen(kw_only=True)
class HybridConfig:
    """Sizes of one hybrid model; checked at construction, ``ConfigError`` names what is wrong."""

    vocab_size: int
    hidden_size: int
    layer_types: tuple[LayerType, ...] = attrs.field(converter=_layers)
    intermediate_size: int = 0
    """Width of the SwiGLU block after each mixer; 0 leaves the block out."""
    state_size: int = 64
    """Numbers that each channel of the recurrent state keeps (N)."""
    head_dim: int = 64
    """Channels of a Mamba-2 head (P)."""
    expand: int = 2
    """Mamba-2 channels for each channel of the hidden state."""
    n_groups: int = 1
    """Groups of heads that share B and C; the gated norm works per group."""
    conv_kernel: int = 4
    chunk_size: int = 64
    """Tokens in a chunk of the chunked scan; changes speed, not meaning."""
    num_heads: int = 4
    """Query heads of an attention layer."""
    num_kv_heads: int = 2
    attn_head_dim: int = 64
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5
    tie_embeddings: bool = True
    max_model_len: int = 8192
    eos_token_ids: tuple[int, ...] = attrs.field(default=(), converter=_ids)
    name: str = "hybrid"

    def __attrs_post_init__(self) -> None:
        self._check_numbers()
        self._check_divisions()

    def _check_numbers(self) -> None:
        for name in _WHOLE_NUMBERS:
            value: object = getattr(self, name)
            least = 0 if name == "intermediate_size" else 1
            if type(value) is not int or value < least:
                raise ConfigError(f"{name} must be a whole number from {least}, not {value!r}")
        for name in _FRACTIONS:
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not 0 < value < float("inf"):
                raise ConfigError(f"{name} must be a number above 0, not {value!r}")
        if type(self.tie_embeddings) is not bool:
            raise ConfigError(f"tie_embeddings must be true or false, not {self.tie_embeddings!r}")
        if not self.name or type(self.name) is not str:
            raise ConfigError(f"name must be a text, not {self.name!r}")
        if not self.layer_types:
            raise ConfigError("layer_types is empty; a model has at least one layer")

    def _check_divisions(self) -> None:
        divisions = (
            ("expand * hidden_size", self.inner_size, "head_dim", self.head_dim),
            ("Mamba-2 heads", self.num_mamba_heads, "n_groups", self.n_groups),
            ("num_heads", self.num_heads, "num_kv_heads", self.num_kv_heads),
            ("attn_head_dim", self.attn_head_dim, "2 (rotary pairs)", 2),
        )
        for whole, size, part, parts in divisions:
            if size % parts:
                raise ConfigError(f"{whole} = {size} can't be divided by {part} = {parts}")
        for token in self.eos_token_ids:
            if not 0 <= token < self.vocab_size:
                raise ConfigError(f"eos token {token} is outside of the vocabulary")

    @property
    def num_layers(self) -> int:
        return len(self.layer_types)

    @property
    def mamba_layers(self) -> tuple[int, ...]:
        """Indices of the layers that keep recurrent state."""
        return tuple(i for i, kind in enumerate(self.layer_types) if kind == "mamba2")

    @property
    def attention_layers(self) -> tuple[int, ...]:
        """Indices of the layers that keep keys and values."""
        return tuple(i for i, kind in enumerate(self.layer_types) if kind == "attention")

    @property
    def inner_size(self) -> int:
        """Channels inside a Mamba-2 layer."""
        return self.expand * self.hidden_size

    @property
    def num_mamba_heads(self) -> int:
        return self.inner_size // self.head_dim

    @property
    def conv_size(self) -> int:
        """Channels that the short convolution sees: x, B and C."""
        return self.inner_size + 2 * self.n_groups * self.state_size

    @property
    def in_proj_size(self) -> int:
        """Rows of a Mamba-2 layer's input projection: z, then x B C, then dt."""
        return self.inner_size + self.conv_size + self.num_mamba_heads

    def to_dict(self) -> dict[str, object]:
        """config.json's object; ``num_layers`` is written for readers and checked on load."""
        fields: dict[str, object] = {"model_type": MODEL_TYPE, "num_layers": self.num_layers}
        return fields | attrs.asdict(self)

    def to_json(self) -> str:
        """The text of config.json."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "HybridConfig":
        """Read config.json's text; unknown, missing and wrong keys are ``ConfigError``s."""
        return cls.from_dict(ConfigReader.from_json(text).values)

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> "HybridConfig":
        """Build a configuration from config.json's object."""
        fields = dict(values)
        kind = fields.pop("model_type", None)
        if kind != MODEL_TYPE:
            raise ConfigError(f"model_type is {kind!r}; this family reads {MODEL_TYPE!r}")
        num_layers = fields.pop("num_layers", None)
        known = {field.name: field for field in attrs.fields(cls)}
        unknown = sorted(fields.keys() - known.keys())
        if unknown:
            raise ConfigError(f"unknown keys in {CONFIG_FILE}: {', '.join(unknown)}")
        missing = [n for n, f in known.items() if f.default is attrs.NOTHING and n not in fields]
        if missing:
            raise ConfigError(f"missing keys in {CONFIG_FILE}: {', '.join(missing)}")
        config = cls(**cast(dict[str, Any], fields))
        if num_layers not in (None, config.num_layers):
            raise ConfigError(f"num_layers is {num_layers!r}, layer_types has {config.num_layers}")
        return config

    @classmethod
    def load(cls, directory: Path) -> "HybridConfig":
        """Read ``directory/config.json``."""
        return cls.from_dict(ConfigReader.load(directory).values)


def parameter_shapes(config: HybridConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of a model, in order from input to output."""
    shapes: dict[str, tuple[int, ...]] = {
        "embed.weight": (config.vocab_size, config.hidden_size),
    }
    for layer, kind in enumerate(config.layer_types):
        mixer = _mamba_shapes(config) if kind == "mamba2" else _attention_shapes(config)
        parts = {"norm.weight": (config.hidden_size,)} | mixer | _mlp_shapes(config)
        shapes |= {f"layers.{layer}.{name}": shape for name, shape in parts.items()}
    shapes["final_norm.weight"] = (config.hidden_size,)
    if not config.tie_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, config.hidden_size)
    return shapes


def _mamba_shapes(config: HybridConfig) -> dict[str, tuple[int, ...]]:
    heads, inner = config.num_mamba_heads, config.inner_size
    return {
        "mixer.in_proj.weight": (config.in_proj_size, config.hidden_size),
        "mixer.conv1d.weight": (config.conv_size, 1, config.conv_kernel),
        "mixer.conv1d.bias": (config.conv_size,),
        "mixer.dt_bias": (heads,),
        "mixer.A_log": (heads,),
        "mixer.D": (heads,),
        "mixer.norm.weight": (inner,),
        "mixer.out_proj.weight": (config.hidden_size, inner),
    }


def _attention_shapes(config: HybridConfig) -> dict[str, tuple[int, ...]]:
    hidden, width = config.hidden_size, config.attn_head_dim
    return {
        "mixer.q_proj.weight": (config.num_heads * width, hidden),
        "mixer.k_proj.weight": (config.num_kv_heads * width, hidden),
        "mixer.v_proj.weight": (config.num_kv_heads * width, hidden),
        "mixer.o_proj.weight": (hidden, config.num_heads * width),
    }


def _mlp_shapes(config: HybridConfig) -> dict[str, tuple[int, ...]]:
    if config.intermediate_size == 0:
        return {}
    hidden, width = config.hidden_size, config.intermediate_size
    return {
        "mlp_norm.weight": (hidden,),
        "mlp.gate_proj.weight": (width, hidden),
        "mlp.up_proj.weight": (width, hidden),
        "mlp.down_proj.weight": (hidden, width),
    }
