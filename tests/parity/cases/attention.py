"""Families without a slot, plain attention, and those of a short convolution beside it."""

from tests.parity.cases.case import cases

__all__ = ["ATTENTION"]

_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
_LINEAR = {"rope_type": "linear", "rope_theta": 5_000.0, "factor": 3.0}
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
    "beta_fast": 4.0,
    "beta_slow": 1.0,
}

_DENSE = {
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}

_LLAMA = cases(
    "llama",
    _DENSE,
    {
        "grouped": {},
        "llama3-rope": {"rope_parameters": _LLAMA3, "head_dim": 10, "num_key_value_heads": 4},
        "linear-rope-biases": {
            "rope_parameters": _LINEAR,
            "attention_bias": True,
            "mlp_bias": True,
            "tie_word_embeddings": True,
        },
        "yarn-rope": {"rope_parameters": _YARN, "num_key_value_heads": 1, "head_dim": 16},
    },
)

_QWEN3 = cases(
    "qwen3",
    {**_DENSE, "head_dim": 8},
    {
        "grouped": {},
        "wide-heads-tied": {"head_dim": 14, "tie_word_embeddings": True, "num_key_value_heads": 4},
        "yarn-rope-bias": {
            "rope_parameters": {**_YARN, "attention_factor": 1.3},
            "attention_bias": True,
            "num_key_value_heads": 1,
        },
    },
)

_CONV = {**_DENSE, "num_hidden_layers": 4, "block_multiple_of": 8}
_LFM2 = cases(
    "lfm2",
    _CONV,
    {
        "three-taps": {"layer_types": ["conv", "conv", "full_attention", "conv"]},
        "bias-four-taps": {
            "layer_types": ["conv", "full_attention", "conv", "full_attention"],
            "conv_bias": True,
            "conv_L_cache": 4,
            "num_key_value_heads": 1,
            "tie_word_embeddings": False,
        },
        "adjusted-width": {
            "layer_types": ["full_attention", "conv", "conv", "conv"],
            "block_auto_adjust_ff_dim": True,
            "block_ffn_dim_multiplier": 1.3,
            "num_key_value_heads": 4,
        },
    },
)

_LFM2_MOE = cases(
    "lfm2_moe",
    {
        **_DENSE,
        "num_hidden_layers": 4,
        "moe_intermediate_size": 14,
        "num_dense_layers": 1,
        "num_experts": 6,
        "num_experts_per_tok": 2,
    },
    {
        "biased-router": {"layer_types": ["conv", "conv", "full_attention", "conv"]},
        "plain-router": {
            "layer_types": ["conv", "full_attention", "conv", "full_attention"],
            "use_expert_bias": False,
            "norm_topk_prob": False,
            "routed_scaling_factor": 1.7,
        },
    },
)

ATTENTION = (*_LLAMA, *_QWEN3, *_LFM2, *_LFM2_MOE)
