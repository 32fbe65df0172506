"""The model that ships with Tenure: Mamba-2 and attention layers, described in ``hybrid``."""

from adapters.layers.attention import Attention
from adapters.layers.mamba2_mixer import GatedNorm, Mamba2, Mamba2Sizes
from adapters.layers.mlp import GatedMlp
from adapters.layers.norm import RmsNorm
from adapters.models.config_reader import ConfigReader
from adapters.models.decoder import Block, Decoder, Mixer
from adapters.models.family import Family
from adapters.models.hybrid import MODEL_TYPE, HybridConfig
from adapters.models.loader import TensorLoader
from adapters.ragged.spec import KvSpec, ModelShape, Rope

__all__ = ["FAMILY"]


def build(reader: ConfigReader, weights: TensorLoader) -> Decoder:
    """Read the sizes, ask for the tensors."""
    config = HybridConfig.from_dict(reader.values)
    hidden, eps = config.hidden_size, config.norm_eps
    embed = weights.matrix("embed.weight", config.vocab_size, hidden)
    blocks: list[Block] = []
    recurrent = attention = 0
    for layer, kind in enumerate(config.layer_types):
        own = weights.under(f"layers.{layer}.")
        mixer: Mixer
        if kind == "mamba2":
            mixer = _mamba2(config, own.under("mixer."), recurrent)
            recurrent += 1
        else:
            mixer = _attention(config, own.under("mixer."), attention)
            attention += 1
        norm = RmsNorm(own.vector("norm.weight", hidden), eps)
        blocks.append(Block(norm, mixer, *_mlp(config, own)))
    final = RmsNorm(weights.vector("final_norm.weight", hidden), eps)
    tied = config.tie_embeddings
    return Decoder(
        shape=_shape(config, recurrent, attention),
        embed=embed,
        blocks=tuple(blocks),
        final_norm=final,
        head=embed if tied else weights.matrix("lm_head.weight", config.vocab_size, hidden),
    )


def _sizes(config: HybridConfig) -> Mamba2Sizes:
    return Mamba2Sizes(
        hidden=config.hidden_size,
        heads=config.num_mamba_heads,
        head_dim=config.head_dim,
        state=config.state_size,
        groups=config.n_groups,
        taps=config.conv_kernel,
    )


def _shape(config: HybridConfig, recurrent: int, attention: int) -> ModelShape:
    sizes, width = _sizes(config), config.attn_head_dim
    widest = (
        sizes.projected if recurrent else 1,
        2 * config.intermediate_size,
        (config.num_heads + 2 * config.num_kv_heads) * width,
    )
    half = width // 2
    return ModelShape(
        name=config.name,
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        max_model_len=config.max_model_len,
        eos_token_ids=config.eos_token_ids,
        states=sizes.states(recurrent) if recurrent else (),
        kv=KvSpec(attention, config.num_kv_heads, width) if attention else None,
        rope=Rope(tuple(config.rope_theta ** -(pair / half) for pair in range(half))),
        taps=config.conv_kernel,
        chunk_size=config.chunk_size,
        token_numbers=max(widest),
        chunk_numbers=sizes.chunk_numbers(config.chunk_size),
    )


def _mamba2(config: HybridConfig, own: TensorLoader, layer: int) -> Mamba2:
    sizes = _sizes(config)
    norm = own.vector("norm.weight", sizes.inner).view(config.n_groups, -1)
    return Mamba2(
        state_layer=layer,
        sizes=sizes,
        in_proj=own.matrix("in_proj.weight", sizes.projected, sizes.hidden),
        conv_weight=own.vector("conv1d.weight", sizes.conv, 1, sizes.taps)[:, 0].T.contiguous(),
        conv_bias=own.vector("conv1d.bias", sizes.conv),
        dt_bias=own.vector("dt_bias", sizes.heads),
        a=-own.vector("A_log", sizes.heads).exp(),
        skip=own.vector("D", sizes.heads)[:, None],
        norm=GatedNorm(norm, config.norm_eps),
        out_proj=own.matrix("out_proj.weight", sizes.hidden, sizes.inner),
    )


def _attention(config: HybridConfig, own: TensorLoader, layer: int) -> Attention:
    queries = config.num_heads * config.attn_head_dim
    shared = config.num_kv_heads * config.attn_head_dim
    rows = {"q_proj.weight": queries, "k_proj.weight": shared, "v_proj.weight": shared}
    return Attention(
        kv_layer=layer,
        heads=config.num_heads,
        kv_heads=config.num_kv_heads,
        width=config.attn_head_dim,
        qkv_proj=own.stack(rows, config.hidden_size),
        o_proj=own.matrix("o_proj.weight", config.hidden_size, queries),
    )


def _mlp(config: HybridConfig, own: TensorLoader) -> tuple[RmsNorm | None, GatedMlp | None]:
    hidden, width = config.hidden_size, config.intermediate_size
    if not width:
        return None, None
    norm = RmsNorm(own.vector("mlp_norm.weight", hidden), config.norm_eps)
    rows = {"mlp.gate_proj.weight": width, "mlp.up_proj.weight": width}
    down = own.matrix("mlp.down_proj.weight", hidden, width)
    return norm, GatedMlp(gate_up_proj=own.stack(rows, hidden), down_proj=down)


FAMILY = Family((MODEL_TYPE,), build)
