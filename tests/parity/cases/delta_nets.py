"""Families of the gated delta rule: Qwen3-Next and Qwen3.5."""

from tests.parity.cases.case import cases

__all__ = ["DELTA_NETS"]

_LINEAR, _FULL = "linear_attention", "full_attention"
_COMMON = {
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 4,
    "layer_types": [_LINEAR, _LINEAR, _FULL, _LINEAR],
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 6,
    "linear_value_head_dim": 10,
}
_EXPERTS = {
    "moe_intermediate_size": 14,
    "shared_expert_intermediate_size": 18,
    "num_experts": 6,
    "num_experts_per_tok": 2,
}

_QWEN3_NEXT = cases(
    "qwen3_next",
    {**_COMMON, **_EXPERTS},
    {
        "moe": {},
        "mixed": {
            "mlp_only_layers": [0, 2],
            "norm_topk_prob": False,
            "linear_conv_kernel_dim": 3,
            "linear_num_key_heads": 3,
            "linear_num_value_heads": 3,
            "num_key_value_heads": 1,
        },
        "dense": {
            "mlp_only_layers": [0, 1, 2, 3],
            "layer_types": [_FULL, _LINEAR, _LINEAR, _FULL],
            "tie_word_embeddings": True,
            "attention_bias": True,
            "partial_rotary_factor": 0.5,
        },
    },
)

_QWEN3_5 = cases(
    "qwen3_5_text",
    _COMMON,
    {
        "grouped": {},
        "equal-heads-tied": {
            "linear_num_key_heads": 3,
            "linear_num_value_heads": 3,
            "linear_value_head_dim": 6,
            "tie_word_embeddings": True,
            "num_key_value_heads": 4,
        },
        "half-rotary": {
            "layer_types": [_FULL, _LINEAR, _FULL, _LINEAR],
            "linear_num_value_heads": 6,
            "linear_conv_kernel_dim": 2,
            "partial_rotary_factor": 0.5,
            "attention_bias": True,
            "num_key_value_heads": 1,
        },
    },
)

_QWEN3_5_MOE = cases(
    "qwen3_5_moe_text",
    {name: value for name, value in (_COMMON | _EXPERTS).items() if name != "intermediate_size"},
    {"moe": {}, "many-experts": {"num_experts": 9, "num_experts_per_tok": 4}},
)

DELTA_NETS = (*_QWEN3_NEXT, *_QWEN3_5, *_QWEN3_5_MOE)
