"""Families of recurrent layers alone: Mamba, Falcon Mamba and Mamba-2."""

from tests.parity.cases.case import cases

__all__ = ["RECURRENT"]

_MAMBA2 = cases(
    "mamba2",
    {
        "hidden_size": 24,
        "num_hidden_layers": 3,
        "state_size": 10,
        "num_heads": 6,
        "head_dim": 8,
        "n_groups": 1,
        "chunk_size": 8,
    },
    {
        "one-group": {},
        "two-groups": {"n_groups": 2, "chunk_size": 4, "conv_kernel": 3},
        "biases-tied": {"use_bias": True, "tie_word_embeddings": True, "num_hidden_layers": 2},
        "wide-heads": {
            "expand": 3,
            "num_heads": 3,
            "head_dim": 24,
            "n_groups": 3,
            "state_size": 7,
            "use_conv_bias": False,
            "chunk_size": 5,
        },
        "limited-steps": {"time_step_limit": (0.3, 1.1)},
    },
)

_MAMBA = cases(
    "mamba",
    {"hidden_size": 20, "num_hidden_layers": 3, "state_size": 6, "time_step_rank": 3},
    {
        "plain": {},
        "biases-untied": {"use_bias": True, "tie_word_embeddings": False, "conv_kernel": 3},
        "no-conv-bias": {"use_conv_bias": False, "expand": 3, "state_size": 9, "conv_kernel": 2},
    },
)

_FALCON_MAMBA = cases(
    "falcon_mamba",
    {"hidden_size": 20, "num_hidden_layers": 3, "state_size": 6, "time_step_rank": 3},
    {
        "plain": {},
        "biases-untied": {
            "use_bias": True,
            "tie_word_embeddings": False,
            "conv_kernel": 3,
            "mixer_rms_eps": 0.01,
        },
    },
)

RECURRENT = (*_MAMBA2, *_MAMBA, *_FALCON_MAMBA)
