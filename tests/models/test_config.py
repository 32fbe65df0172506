"""The configuration of the hybrid family."""

import json
from pathlib import Path

import attrs
import pytest

from adapters.models.errors import ConfigError, ModelFileMissing
from adapters.models.hybrid import HybridConfig, parameter_shapes
from kernel.errors import ModelError
from tests.models.sizes import EVERYTHING, PLAIN


@pytest.mark.parametrize("config", [PLAIN, EVERYTHING], ids=lambda config: config.name)
def test_a_config_survives_json(config: HybridConfig) -> None:
    """What config.json says is all that a model needs to be built again."""
    again = HybridConfig.from_json(config.to_json())

    assert config == again


def test_json_tells_type_and_number_of_layers() -> None:
    """Tools that know nothing of this family look for these two keys."""
    fields = json.loads(PLAIN.to_json())

    assert (fields["model_type"], fields["num_layers"]) == ("tenure_hybrid", 3)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model_type": "llama"}, "model_type"),
        ({"num_layers": 4}, "num_layers"),
        ({"hidden": 16}, "hidden"),
        ({"vocab_size": 0}, "vocab_size"),
        ({"vocab_size": 3.5}, "vocab_size"),
        ({"intermediate_size": -1}, "intermediate_size"),
        ({"norm_eps": 0}, "norm_eps"),
        ({"rope_theta": "big"}, "rope_theta"),
        ({"rope_theta": float("inf")}, "rope_theta"),
        ({"layer_types": []}, "layer_types"),
        ({"layer_types": "mamba2"}, "layer_types"),
        ({"layer_types": ["mamba2", "lstm", "mamba2"]}, "lstm"),
        ({"head_dim": 5}, "head_dim"),
        ({"n_groups": 3}, "n_groups"),
        ({"num_kv_heads": 3}, "num_kv_heads"),
        ({"attn_head_dim": 5}, "attn_head_dim"),
        ({"eos_token_ids": [31]}, "31"),
        ({"eos_token_ids": 0}, "eos_token_ids"),
        ({"eos_token_ids": ["0"]}, "eos_token_ids"),
        ({"tie_embeddings": 1}, "tie_embeddings"),
        ({"name": None}, "name"),
    ],
)
def test_a_wrong_value_is_refused_by_name(change: dict[str, object], named: str) -> None:
    """A typo in config.json must not surface as a shape error three calls later."""
    fields = json.loads(PLAIN.to_json()) | change

    with pytest.raises(ConfigError, match=named):
        HybridConfig.from_dict(fields)


def test_a_missing_key_is_refused_by_name() -> None:
    """Sizes that have no sensible default are not guessed."""
    fields = json.loads(PLAIN.to_json())
    del fields["hidden_size"]

    with pytest.raises(ConfigError, match="hidden_size"):
        HybridConfig.from_dict(fields)


@pytest.mark.parametrize("text", ["", "{", "[]", "7"])
def test_text_that_is_no_object_is_refused(text: str) -> None:
    """A cut-off or foreign config.json is a typed error."""
    with pytest.raises(ConfigError):
        HybridConfig.from_json(text)


def test_a_folder_without_config_is_no_model(tmp_path: Path) -> None:
    """The commonest mistake, a wrong path, says so in a type that callers catch anyway."""
    with pytest.raises(ModelFileMissing, match=r"config\.json") as caught:
        HybridConfig.load(tmp_path)

    assert isinstance(caught.value, ModelError)


def test_a_binary_config_is_refused(tmp_path: Path) -> None:
    """Bytes that are no text get the same type as text that is no JSON."""
    (tmp_path / "config.json").write_bytes(b"\xff\xfe\x00")

    with pytest.raises(ConfigError, match="UTF-8"):
        HybridConfig.load(tmp_path)


def test_shapes_follow_the_mamba2_layout() -> None:
    """in_proj gives z (32), x B C (32 + 2 * 8) and dt (4 heads); the names are the contract."""
    shapes = parameter_shapes(PLAIN)

    assert shapes["layers.0.mixer.in_proj.weight"] == (32 + 48 + 4, 16)
    assert shapes["layers.0.mixer.conv1d.weight"] == (48, 1, 4)
    assert shapes["layers.2.mixer.A_log"] == (4,)
    assert shapes["layers.1.mixer.q_proj.weight"] == (24, 16)
    assert shapes["layers.1.mixer.k_proj.weight"] == (12, 16)
    assert "lm_head.weight" not in shapes
    assert not any("mlp" in name for name in shapes)


def test_options_add_their_tensors() -> None:
    """An MLP block and an untied head have tensors of their own."""
    shapes = parameter_shapes(EVERYTHING)

    assert shapes["layers.1.mlp.gate_proj.weight"] == (20, 24)
    assert shapes["layers.0.mlp_norm.weight"] == (24,)
    assert shapes["lm_head.weight"] == (29, 24)


def test_a_model_without_attention_lists_no_attention_layers() -> None:
    """Devices decide by these lists whether a model needs slots, pages, or both."""
    config = attrs.evolve(PLAIN, layer_types=("mamba2", "mamba2"))

    assert (config.mamba_layers, config.attention_layers) == ((0, 1), ())
