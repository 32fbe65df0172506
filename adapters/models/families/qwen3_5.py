"""Qwen3.5, its text model: Gated DeltaNet, gated attention in every fourth layer.

Directories hold the text model alone or with its vision tower, whose tensors are left alone. A
text has one position a token, for which the three-part rotation of images is the ordinary one.
"""

from torch import Tensor

from adapters.layers.delta_net import DeltaNetSizes
from adapters.models import parts
from adapters.models.config_reader import ConfigReader
from adapters.models.decoder import Decoder, FeedForward
from adapters.models.delta_parts import DeltaFamily, ExpertSizes, delta_decoder
from adapters.models.family import Family
from adapters.models.loader import TensorLoader

__all__ = ["FAMILY"]

_WITH_EXPERTS = ("qwen3_5_moe", "qwen3_5_moe_text")
_BESIDE_VISION = "model.language_model."


def build(config: ConfigReader, weights: TensorLoader) -> Decoder:
    """Read the sizes, ask for the tensors."""
    has_experts = config.text("model_type") in _WITH_EXPERTS
    config = _text_config(config)
    experts = ExpertSizes.read(config, renormalise=True) if has_experts else None
    hidden = config.integer("hidden_size")
    width = 0 if experts else config.integer("intermediate_size")

    def feed_forward(own: TensorLoader, _layer: int) -> FeedForward:
        return experts.load(own) if experts else parts.gated_mlp(own, hidden, width)

    weights.skip("mtp.*")
    weights.skip("model.visual.*")
    beside_vision = weights.has(f"{_BESIDE_VISION}embed_tokens.weight")
    family = DeltaFamily(
        input_projection=_input_projection,
        feed_forward=feed_forward,
        feed_forward_numbers=experts.numbers if experts else 2 * width,
        stem=_BESIDE_VISION if beside_vision else "model.",
    )
    return delta_decoder(config, weights, family)


def _text_config(config: ConfigReader) -> ConfigReader:
    """The part about the text model, with what stands above it for both."""
    if not config.has("text_config"):
        return config
    text = config.sub("text_config")
    values = dict(text.values)
    if not text.has("eos_token_id"):
        values["eos_token_id"] = config.values.get("eos_token_id")
    values["model_type"] = config.text("model_type")
    if config.has("tie_word_embeddings"):
        values["tie_word_embeddings"] = config.boolean("tie_word_embeddings")
    return ConfigReader(values, where=text.where)


def _input_projection(weights: TensorLoader, sizes: DeltaNetSizes) -> Tensor:
    rows = {
        "in_proj_qkv.weight": sizes.conv,
        "in_proj_z.weight": sizes.values,
        "in_proj_b.weight": sizes.value_heads,
        "in_proj_a.weight": sizes.value_heads,
    }
    return weights.stack(rows, sizes.hidden)


FAMILY = Family(("qwen3_5", "qwen3_5_text", *_WITH_EXPERTS), build)
