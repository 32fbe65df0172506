"""What ``tenure info`` tells about a model directory."""

import hashlib
import json
from pathlib import Path

import pytest

from adapters.cli.model_facts import BUNDLED, model_facts

CARD = """# tiny

## Figures

| what | measured | goal |
|---|---|---|
| bits per byte, held-out | 1.402 | at most 1.5 |
| of these, austen | 1.5 | |

## Data

| text | bytes |
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    config = {"name": "tiny", "layer_types": ["mamba2", "attention", "mamba2"], "vocab_size": 512}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "MODEL_CARD.md").write_text(CARD, encoding="utf-8")
    digest = hashlib.sha256(b"weights").hexdigest()
    (tmp_path / "SHA256SUMS").write_text(f"{digest}  model.safetensors\n", encoding="utf-8")
    return tmp_path


def test_configuration_files_and_figures_are_told(directory: Path) -> None:
    """A person wants to know what answered before asking why it answered that."""
    assert model_facts(directory) == {
        "name": "tiny",
        "layers": "2 mamba2, 1 attention",
        "vocab_size": 512,
        "weights_bytes": 7,
        "checksums": "ok",
        "bits per byte, held-out": "1.402",
        "of these, austen": "1.5",
    }


def test_a_changed_file_is_named(directory: Path) -> None:
    """Damage that still loads shows in nothing but worse text."""
    (directory / "model.safetensors").write_bytes(b"other weights")

    assert model_facts(directory)["checksums"] == "differ: model.safetensors"


def test_missing_files_are_told_and_not_raised_about(directory: Path) -> None:
    """The command is for finding out what is wrong."""
    for name in ("SHA256SUMS", "MODEL_CARD.md", "model.safetensors"):
        (directory / name).unlink()
    facts = model_facts(directory)

    assert (facts["checksums"], facts["weights_bytes"]) == ("no SHA256SUMS", 0)

    (directory / "config.json").unlink()

    assert model_facts(directory)["problem"] == "it holds no config.json"


def test_the_bundled_model_is_whole() -> None:
    """The files in the package are those that its checksums name."""
    facts = model_facts(BUNDLED)

    assert facts["checksums"] == "ok"
    assert 0 < int(str(facts["weights_bytes"])) <= 16_000_000
