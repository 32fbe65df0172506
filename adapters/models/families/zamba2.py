"""Zamba2 (Glorioso et al. 2024): Mamba-2 layers; at some of them a shared transformer block."""

import math
from collections.abc import Sequence

import attrs
from torch import Tensor

from adapters.layers.attention import Attention
from adapters.layers.linear import linear
from adapters.layers.mamba2_mixer import Mamba2Sizes
from adapters.layers.mlp import GatedMlp
from adapters.layers.norm import RmsNorm
from adapters.layers.shared_block import Adapter, SharedBlock, SharedBlockUse
from adapters.models import parts
from adapters.models.config_reader import ConfigReader
from adapters.models.decoder import Block, Decoder, Mixer
from adapters.models.family import Family
from adapters.models.loader import TensorLoader
from adapters.models.rope import read_rope
from adapters.ragged.run import Pass
from adapters.ragged.spec import KvSpec, ModelShape

__all__ = ["FAMILY"]

_MIXER_EPS = 1e-5
_KINDS = {"linear_attention": False, "mamba": False, "hybrid": True}
"""Whether a layer of that kind uses a shared block; "mamba" is the older name."""


@attrs.frozen(eq=False, kw_only=True)
class _Hybrid:
    """What the shared block says goes into the mixer, not into the residual stream."""

    embed: Tensor
    """[vocabulary, hidden]"""
    shared: SharedBlockUse
    linear: Tensor
    """[hidden, hidden]"""
    norm: RmsNorm
    mixer: Mixer

    def __call__(self, x: Tensor, run: Pass) -> Tensor:
        """Add the mixer's part to x [tokens, hidden], in place."""
        embedded = self.embed.index_select(0, run.plan.tokens).to(x.dtype)
        told = linear(self.shared(x, embedded, run), self.linear)
        return x.add_(self.mixer(self.norm(x + told), run))


@attrs.frozen(eq=False, kw_only=True)
class _Builder:
    """The sizes, and how each part asks for its tensors."""

    config: ConfigReader
    hybrids: Sequence[int]
    """Layers that use a shared block."""
    mamba: Mamba2Sizes
    attention: parts.AttentionSizes
    width: int
    eps: float
    bias: bool

    @classmethod
    def read(cls, config: ConfigReader, hybrids: Sequence[int]) -> "_Builder":
        hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
        mixer_heads = config.integer("n_mamba_heads", 8)
        inner = int(config.number("mamba_expand", 2.0) * hidden)
        if inner % mixer_heads:
            raise config.wrong("n_mamba_heads", mixer_heads, f"a divisor of {inner} channels")
        # Written beside what they follow from.
        derived = {"attention_head_dim": 2 * hidden // heads, "mamba_headdim": inner // mixer_heads}
        for name, width in derived.items():
            if config.integer(name, width) != width:
                raise config.wrong(name, config.integer(name), f"{width}, as other keys have it")
        return cls(
            config=config,
            hybrids=hybrids,
            mamba=Mamba2Sizes(
                hidden=hidden,
                heads=mixer_heads,
                head_dim=inner // mixer_heads,
                state=config.integer("mamba_d_state", 64),
                groups=config.integer("mamba_ngroups", 1),
                taps=config.integer("mamba_d_conv", 4),
            ),
            attention=parts.AttentionSizes(
                hidden=2 * hidden,
                heads=heads,
                kv_heads=config.integer("num_key_value_heads", heads),
                width=2 * hidden // heads,
            ),
            width=config.integer("intermediate_size", 4 * hidden),
            eps=config.number("rms_norm_eps", 1e-5),
            bias=config.boolean("add_bias_linear", False),
        )

    @property
    def hidden(self) -> int:
        return self.mamba.hidden

    @property
    def num_blocks(self) -> int:
        return self.config.integer("num_mem_blocks", 1)

    def mixer(self, own: TensorLoader, layer: int) -> tuple[RmsNorm, Mixer]:
        """A Mamba-2 layer: its norm and its mixer."""
        sizes, inside = self.mamba, own.under("mamba.")
        mixer = parts.mamba2(
            inside,
            sizes,
            layer,
            norm=parts.grouped_norm(inside, sizes.inner, sizes.groups, _MIXER_EPS),
            bias=self.bias,
            conv_bias=True,
            dt_limits=(self.config.number("time_step_min", 0.001), math.inf),
        )
        return parts.rms_norm(own, "input_layernorm", self.hidden, self.eps), mixer

    def shared_block(self, own: TensorLoader) -> SharedBlock:
        """What all uses of a block have in common."""
        sizes, hidden = self.attention, self.hidden
        queries, shared = sizes.heads * sizes.width, sizes.kv_heads * sizes.width
        inside, feed = own.under("self_attn."), own.under("feed_forward.")
        rows = {"q_proj.weight": queries, "k_proj.weight": shared, "v_proj.weight": shared}
        return SharedBlock(
            norm=parts.rms_norm(own, "input_layernorm", sizes.hidden, self.eps),
            attention=Attention(
                kv_layer=0,
                heads=sizes.heads,
                kv_heads=sizes.kv_heads,
                width=sizes.width,
                qkv_proj=inside.stack(rows, sizes.hidden),
                o_proj=inside.matrix("o_proj.weight", hidden, queries),
                scale=(sizes.width / 2) ** -0.5,
                rotates=self.config.boolean("use_mem_rope", False),
            ),
            mlp_norm=parts.rms_norm(own, "pre_ff_layernorm", hidden, self.eps),
            mlp=GatedMlp(
                gate_up_proj=feed.matrix("gate_up_proj.weight", 2 * self.width, hidden),
                gate_up_bias=feed.tensor("gate_up_proj.bias", 2 * self.width)
                if self.bias
                else None,
                down_proj=feed.matrix("down_proj.weight", hidden, self.width),
                down_bias=feed.tensor("down_proj.bias", hidden) if self.bias else None,
                activation=self.config.choice("hidden_act", parts.ACTIVATIONS, "gelu"),
            ),
        )

    def use(self, own: TensorLoader, block: SharedBlock, number: int) -> SharedBlockUse:
        """The ``number``-th use of any block; its adapters lie beside the block's weights."""
        sizes = self.attention
        adapters: list[Adapter] = []
        if self.config.boolean("use_shared_attention_adapter", False):
            if sizes.kv_heads != sizes.heads:
                why = f"as many as num_attention_heads ({sizes.heads}), for the adapters"
                raise self.config.wrong("num_key_value_heads", sizes.kv_heads, why)
            adapters = [
                self._adapter(
                    own.under(f"self_attn.linear_{part}_adapter_list.{number}."),
                    sizes.hidden,
                    sizes.heads * sizes.width,
                )
                for part in "qkv"
            ]
        beside = own.under(f"feed_forward.gate_up_proj_adapter_list.{number}.")
        return SharedBlockUse(
            block=block,
            kv_layer=number,
            attention_adapters=adapters,
            mlp_adapter=self._adapter(beside, self.hidden, 2 * self.width),
        )

    def _adapter(self, own: TensorLoader, columns: int, rows: int) -> Adapter:
        rank = self.config.integer("adapter_rank", 128)
        return Adapter(own.matrix("0.weight", rank, columns), own.matrix("1.weight", rows, rank))


def build(config: ConfigReader, weights: TensorLoader) -> Decoder:
    """Read the sizes, ask for the tensors."""
    config.refuse("use_long_context", unless=False, why="its rescaled rotation isn't built")
    kinds = config.texts("layers_block_type", tuple(_KINDS))
    if config.integer("num_hidden_layers", len(kinds)) != len(kinds):
        raise config.wrong("num_hidden_layers", config.values["num_hidden_layers"], f"{len(kinds)}")
    hybrids = [layer for layer, kind in enumerate(kinds) if _KINDS[kind]]
    made = _Builder.read(config, hybrids)
    hidden, vocabulary = made.hidden, config.integer("vocab_size")
    embed = weights.matrix("model.embed_tokens.weight", vocabulary, hidden)
    blocks: list[Block | _Hybrid] = []
    shared: list[tuple[TensorLoader, SharedBlock]] = []
    for layer in range(len(kinds)):
        own = weights.under(f"model.layers.{layer}.")
        if layer not in hybrids:
            blocks.append(Block(*made.mixer(own, layer)))
            continue
        number = hybrids.index(layer)
        beside = own.under("shared_transformer.")
        if number < made.num_blocks:
            shared.append((beside, made.shared_block(beside)))
        else:
            weights.skip(f"{beside.prefix}*")  # a copy, where the writer didn't leave it out
        where, block = shared[number % made.num_blocks]
        norm, mixer = made.mixer(own.under("mamba_decoder."), layer)
        blocks.append(
            _Hybrid(
                embed=embed,
                shared=made.use(where, block, number),
                linear=own.matrix("linear.weight", hidden, hidden),
                norm=norm,
                mixer=mixer,
            )
        )
    return Decoder(
        shape=_shape(made, len(kinds)),
        embed=embed,
        blocks=tuple(blocks),
        final_norm=parts.rms_norm(weights, "model.final_layernorm", hidden, made.eps),
        head=parts.output_head(config, weights, embed),
    )


def _shape(made: _Builder, layers: int) -> ModelShape:
    config, mamba, attention = made.config, made.mamba, made.attention
    chunk = min(config.integer("chunk_size", 256), 64)
    rotates = config.boolean("use_mem_rope", False)
    return ModelShape(
        name=parts.model_name(config),
        vocab_size=config.integer("vocab_size"),
        hidden_size=made.hidden,
        max_model_len=config.integer("max_position_embeddings", 4096),
        eos_token_ids=parts.eos_token_ids(config),
        states=mamba.states(layers),
        kv=KvSpec(len(made.hybrids), attention.kv_heads, attention.width) if made.hybrids else None,
        rope=read_rope(config, attention.width) if rotates else None,
        taps=mamba.taps,
        chunk_size=chunk,
        token_numbers=max(mamba.projected, 2 * made.width, attention.projected),
        chunk_numbers=mamba.chunk_numbers(chunk),
    )


FAMILY = Family(("zamba2",), build)
