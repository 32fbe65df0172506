"""Qwen3-Next: Gated DeltaNet, gated attention in every fourth layer, experts in most."""

import torch
from torch import Tensor

from adapters.layers.delta_net import DeltaNetSizes
from adapters.models import parts
from adapters.models.config_reader import ConfigReader
from adapters.models.decoder import Decoder, FeedForward
from adapters.models.delta_parts import DeltaFamily, ExpertSizes, delta_decoder
from adapters.models.family import Family
from adapters.models.loader import TensorLoader

__all__ = ["FAMILY"]


def build(config: ConfigReader, weights: TensorLoader) -> Decoder:
    """Read the sizes, ask for the tensors."""
    hidden, width = config.integer("hidden_size"), config.integer("intermediate_size", 5632)
    dense = set(config.integers("mlp_only_layers", ()))
    step = config.integer("decoder_sparse_step", 1)
    experts = None
    if config.integer("num_experts", 512, least=0):
        renormalise = config.boolean("norm_topk_prob", True)
        experts = ExpertSizes.read(config, renormalise=renormalise)

    def feed_forward(own: TensorLoader, layer: int) -> FeedForward:
        if experts is None or layer in dense or (layer + 1) % step:
            return parts.gated_mlp(own, hidden, width)
        return experts.load(own)

    weights.skip("mtp.*")
    family = DeltaFamily(
        input_projection=_input_projection,
        feed_forward=feed_forward,
        feed_forward_numbers=max(2 * width, experts.numbers if experts else 0),
    )
    return delta_decoder(config, weights, family)


def _input_projection(weights: TensorLoader, sizes: DeltaNetSizes) -> Tensor:
    """Rows come key head by key head, each with its own value heads' share of everything."""
    heads, each = sizes.key_heads, sizes.value_heads // sizes.key_heads
    shared = each * sizes.value_width
    large = weights.matrix("in_proj_qkvz.weight", sizes.conv + sizes.values, sizes.hidden)
    small = weights.matrix("in_proj_ba.weight", 2 * sizes.value_heads, sizes.hidden)
    parts_of_head = (
        (large, [sizes.key_width, sizes.key_width, shared, shared]),
        (small, [each, each]),
    )
    ordered = [
        part.flatten(0, 1)
        for rows, widths in parts_of_head
        for part in torch.split_with_sizes(rows.view(heads, -1, sizes.hidden), widths, dim=1)
    ]
    joined = large.new_empty(sum(part.shape[0] for part in ordered), sizes.hidden)
    places = torch.split_with_sizes(joined, [part.shape[0] for part in ordered])
    for place, part in zip(places, ordered, strict=True):
        place.copy_(part)
    return joined


FAMILY = Family(("qwen3_next",), build)
