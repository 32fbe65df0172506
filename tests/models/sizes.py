"""Tiny configurations that between them use every option of the hybrid family."""

from adapters.models.hybrid import HybridConfig

PLAIN = HybridConfig(
    vocab_size=31,
    hidden_size=16,
    layer_types=("mamba2", "attention", "mamba2"),
    state_size=8,
    head_dim=8,
    chunk_size=8,
    num_heads=4,
    num_kv_heads=2,
    attn_head_dim=6,
    eos_token_ids=(0,),
    name="plain",
)

EVERYTHING = HybridConfig(
    vocab_size=29,
    hidden_size=24,
    layer_types=("attention", "mamba2", "mamba2"),
    intermediate_size=20,
    state_size=4,
    head_dim=6,
    expand=2,
    n_groups=2,
    conv_kernel=3,
    chunk_size=4,
    num_heads=3,
    num_kv_heads=1,
    attn_head_dim=8,
    rope_theta=500.0,
    tie_embeddings=False,
    eos_token_ids=(1, 2),
    name="everything",
)
