"""Plain attention models: Llama and Qwen3. They keep no recurrent state and need no slot."""

from adapters.models import parts
from adapters.models.config_reader import ConfigReader
from adapters.models.decoder import Block, Decoder
from adapters.models.family import Family
from adapters.models.loader import TensorLoader
from adapters.models.rope import read_rope
from adapters.ragged.spec import KvSpec, ModelShape

__all__ = ["FAMILY"]


def build(config: ConfigReader, weights: TensorLoader) -> Decoder:
    """Read the sizes, ask for the tensors."""
    config.refuse("use_sliding_window", unless=False, why="sliding windows aren't built")
    if config.has("layer_types"):
        config.texts("layer_types", ("full_attention",))
    sizes = parts.AttentionSizes.read(config)
    hidden, layers = sizes.hidden, config.integer("num_hidden_layers")
    vocabulary, width = config.integer("vocab_size"), config.integer("intermediate_size")
    eps = config.number("rms_norm_eps", 1e-6)
    bias, mlp_bias = config.boolean("attention_bias", False), config.boolean("mlp_bias", False)
    activation = config.choice("hidden_act", parts.ACTIVATIONS, "silu")
    # Qwen3 is Llama with a norm over each head's queries and keys.
    norms = ("q_norm", "k_norm") if config.text("model_type") == "qwen3" else None

    weights.skip("*.rotary_emb.inv_freq")
    embed = weights.matrix("model.embed_tokens.weight", vocabulary, hidden)
    blocks: list[Block] = []
    for layer in range(layers):
        own = weights.under(f"model.layers.{layer}.")
        mixer = parts.attention(
            own.under("self_attn."),
            sizes,
            layer,
            bias=bias,
            o_bias=bias,
            norms=norms,
            norm_eps=eps,
        )
        mlp = parts.gated_mlp(
            own.under("mlp."), hidden, width, bias=mlp_bias, activation=activation
        )
        norm = parts.rms_norm(own, "input_layernorm", hidden, eps)
        mlp_norm = parts.rms_norm(own, "post_attention_layernorm", hidden, eps)
        blocks.append(Block(norm, mixer, mlp_norm, mlp))
    return Decoder(
        shape=ModelShape(
            name=parts.model_name(config),
            vocab_size=vocabulary,
            hidden_size=hidden,
            max_model_len=config.integer("max_position_embeddings", 2048),
            eos_token_ids=parts.eos_token_ids(config),
            kv=KvSpec(layers, sizes.kv_heads, sizes.width),
            rope=read_rope(config, sizes.width),
            token_numbers=max(2 * width, sizes.projected),
        ),
        embed=embed,
        blocks=tuple(blocks),
        final_norm=parts.rms_norm(weights, "model.norm", hidden, eps),
        head=parts.output_head(config, weights, embed),
    )


FAMILY = Family(("llama", "qwen3"), build)
