"""Families that put attention beside a Mamba-2 or a Mamba layer."""

from tests.parity.cases.case import cases

__all__ = ["HYBRIDS"]

_MAMBA2 = {
    "mamba_n_heads": 6,
    "mamba_d_head": 8,
    "mamba_d_state": 10,
    "mamba_n_groups": 1,
    "mamba_chunk_size": 8,
}
_ATTENTION = {
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
_LINEAR, _FULL = "linear_attention", "full_attention"

_GRANITE = cases(
    "granitemoehybrid",
    {
        **_MAMBA2,
        **_ATTENTION,
        "num_hidden_layers": 4,
        "layer_types": [_LINEAR, _FULL, _LINEAR, _LINEAR],
        "shared_intermediate_size": 36,
        "num_local_experts": 0,
        "num_experts_per_tok": 0,
        "embedding_multiplier": 3.7,
        "logits_scaling": 2.3,
        "residual_multiplier": 0.61,
        "attention_multiplier": 0.23,
    },
    {
        "dense-nope": {},
        "dense-rope-tied": {
            "position_embedding_type": "rope",
            "tie_word_embeddings": True,
            "mamba_n_groups": 2,
            "mamba_chunk_size": 4,
            "attention_bias": True,
        },
        "moe-nope": {
            "num_local_experts": 5,
            "num_experts_per_tok": 2,
            "intermediate_size": 14,
            "mamba_proj_bias": True,
            "num_key_value_heads": 1,
        },
        "moe-rope": {
            "position_embedding_type": "rope",
            "num_local_experts": 4,
            "num_experts_per_tok": 3,
            "intermediate_size": 18,
            "mamba_n_groups": 3,
            "mamba_conv_bias": False,
            "num_key_value_heads": 4,
            "layer_types": [_FULL, _LINEAR, _LINEAR, _FULL],
        },
    },
)

_FALCON = cases(
    "falcon_h1",
    {
        **_MAMBA2,
        **_ATTENTION,
        "num_hidden_layers": 3,
        "mamba_d_ssm": 48,
        "lm_head_multiplier": 0.31,
        "embedding_multiplier": 2.9,
        "mlp_multipliers": [0.71, 1.37],
        "key_multiplier": 0.83,
        "attention_out_multiplier": 1.19,
        "attention_in_multiplier": 0.91,
        "ssm_multipliers": [0.79, 1.23, 0.67, 1.41, 0.87],
        "ssm_in_multiplier": 1.13,
        "ssm_out_multiplier": 0.77,
    },
    {
        "no-norm": {},
        "norm-after-gate": {
            "mamba_rms_norm": True,
            "mamba_norm_before_gate": False,
            "mamba_n_groups": 2,
            "mamba_chunk_size": 4,
        },
        "norm-before-gate": {
            "mamba_rms_norm": True,
            "mamba_norm_before_gate": True,
            "mamba_n_groups": 3,
            "tie_word_embeddings": True,
            "num_key_value_heads": 1,
        },
        "biases": {
            "mamba_d_ssm": 30,
            "mamba_n_heads": 5,
            "mamba_d_head": 6,
            "mamba_proj_bias": True,
            "attention_bias": True,
            "mlp_bias": True,
            "projectors_bias": True,
            "head_dim": 10,
        },
    },
)

_BAMBA = cases(
    "bamba",
    {**_MAMBA2, **_ATTENTION, "num_hidden_layers": 3, "attn_layer_indices": [1]},
    {
        "grouped": {"hidden_size": 32, "mamba_n_heads": 8},
        "two-groups-tied": {
            "hidden_size": 32,
            "mamba_n_heads": 4,
            "mamba_d_head": 16,
            "mamba_n_groups": 2,
            "mamba_chunk_size": 4,
            "num_key_value_heads": 1,
            "tie_word_embeddings": True,
            "attn_layer_indices": [0, 2],
        },
        "biases": {
            "hidden_size": 32,
            "mamba_n_heads": 8,
            "mamba_proj_bias": True,
            "attention_bias": True,
            "mlp_bias": True,
            "num_key_value_heads": 4,
        },
    },
)

_NEMOTRON = cases(
    "nemotron_h",
    {
        **_ATTENTION,
        "mamba_num_heads": 6,
        "mamba_head_dim": 8,
        "ssm_state_size": 10,
        "n_groups": 2,
        "chunk_size": 8,
        "head_dim": 10,
        "moe_intermediate_size": 14,
        "moe_shared_expert_intermediate_size": 18,
        "n_routed_experts": 6,
        "num_experts_per_tok": 2,
    },
    {
        "dense": {"layers_block_type": [_LINEAR, "mlp", _FULL, _LINEAR, "mlp"]},
        "dense-biases": {
            "layers_block_type": [_FULL, "mlp", _LINEAR, "mlp"],
            "use_bias": True,
            "mamba_proj_bias": True,
            "attention_bias": True,
            "mlp_bias": True,
            "n_groups": 3,
            "mamba_head_dim": 5,
            "num_key_value_heads": 1,
        },
        "moe": {
            "layers_block_type": [_LINEAR, "moe", _FULL, "moe", _LINEAR],
            "n_groups": 1,
            "routed_scaling_factor": 2.3,
        },
        "moe-grouped-latent": {
            "layers_block_type": [_LINEAR, "moe", _FULL, "mlp", "moe"],
            "moe_latent_size": 12,
            "n_routed_experts": 8,
            "n_group": 4,
            "topk_group": 2,
            "norm_topk_prob": False,
            "num_experts_per_tok": 3,
        },
    },
)

_ZAMBA2 = cases(
    "zamba2",
    {
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 5,
        "layers_block_type": [_LINEAR, "hybrid", _LINEAR, "hybrid", _LINEAR],
        "mamba_d_state": 10,
        "n_mamba_heads": 6,
        "num_attention_heads": 4,
        "chunk_size": 8,
        "adapter_rank": 5,
    },
    {
        "one-shared-block": {"num_key_value_heads": 2},
        "two-blocks-rope": {
            "num_hidden_layers": 6,
            "layers_block_type": ["hybrid", _LINEAR, "hybrid", "hybrid", "hybrid", _LINEAR],
            "num_mem_blocks": 2,
            "use_mem_rope": True,
            "mamba_ngroups": 2,
            "chunk_size": 4,
        },
        "adapters": {
            "use_shared_attention_adapter": True,
            "use_mem_rope": True,
            "num_mem_blocks": 2,
            "add_bias_linear": True,
            "time_step_min": 0.2,
            "tie_word_embeddings": False,
        },
    },
    gain=0.7,  # a shared block has no residual connections: with more, its errors grow
)

_JAMBA = cases(
    "jamba",
    {
        **_ATTENTION,
        "num_hidden_layers": 4,
        "mamba_d_state": 6,
        "mamba_dt_rank": 3,
        "attn_layer_period": 3,
        "attn_layer_offset": 1,
        "num_experts": 5,
        "num_experts_per_tok": 2,
    },
    {
        "moe": {},
        "dense": {"num_experts": 1, "num_experts_per_tok": 1, "num_key_value_heads": 1},
        "biases-tied": {
            "mamba_proj_bias": True,
            "mamba_conv_bias": True,
            "mamba_d_conv": 3,
            "mamba_expand": 3,
            "expert_layer_period": 3,
            "expert_layer_offset": 0,
            "attn_layer_offset": 2,
            "tie_word_embeddings": True,
        },
    },
)

HYBRIDS = (*_GRANITE, *_FALCON, *_BAMBA, *_NEMOTRON, *_ZAMBA2, *_JAMBA)
