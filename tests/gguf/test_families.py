"""The same weights through both readers give the same logits, for every family and number type."""

from pathlib import Path

import attrs
import pytest
import torch

from tests.gguf.models import case_of, logits_of_directory, logits_of_file, make_both

pytestmark = pytest.mark.timeout(120)
"""The first of them imports a model of transformers."""
CASES = (
    "llama:grouped",
    "llama:linear-rope-biases",
    "llama:yarn-rope",
    "qwen3:wide-heads-tied",
    "mamba:biases-untied",
    "mamba2:two-groups",
    "falcon_h1:norm-after-gate",
    "granitemoehybrid:dense-nope",
    "granitemoehybrid:moe-nope",
    "bamba:biases",
    "lfm2:adjusted-width",
    "lfm2_moe:biased-router",
    "nemotron_h:dense",
    "nemotron_h:moe-grouped-latent",
    "jamba:moe",
    "qwen3_next:moe",
    "qwen3_5_text:grouped",
)
WIDE = {
    "llama": {"hidden_size": 64, "intermediate_size": 96},
    "granitemoehybrid": {"hidden_size": 64, "intermediate_size": 96, "mamba_n_heads": 16},
    "mamba2": {"hidden_size": 64, "num_heads": 8, "head_dim": 16, "expand": 2},
}


@pytest.mark.parametrize("key", CASES)
def test_logits_of_a_file_are_those_of_a_directory_bit_by_bit(tmp_path: Path, key: str) -> None:
    directory, path = make_both(case_of(key), tmp_path)

    assert torch.equal(logits_of_file(path), logits_of_directory(directory))


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        *(("llama:grouped", kind) for kind in ("F16", "BF16", "Q8_0", "Q5_1", "Q4_0")),
        ("granitemoehybrid:moe-nope", "Q4_0"),
        ("mamba2:two-groups", "Q8_0"),
    ],
)
def test_quantised_files_give_the_logits_of_the_dequantised_numbers(
    tmp_path: Path, key: str, kind: str
) -> None:
    case = case_of(key)
    wide = attrs.evolve(case, settings={**case.settings, **WIDE[case.family]})

    directory, path = make_both(wide, tmp_path, kind)

    assert torch.equal(logits_of_file(path), logits_of_directory(directory))
