"""What a model directory says of itself: its configuration, its files, its card's figures."""

import hashlib
import json
from pathlib import Path
from typing import cast

__all__ = ["BUNDLED", "model_facts"]

BUNDLED = Path(__file__).parents[1] / "models" / "bundled"
_SHOWN = ("name", "layer_types", "hidden_size", "vocab_size", "max_model_len")


def model_facts(directory: Path) -> dict[str, object]:
    """Facts by name; files that are missing are told, not raised about."""
    config = directory / "config.json"
    if not config.is_file():
        return {"directory": str(directory), "problem": "it holds no config.json"}
    settings = cast("dict[str, object]", json.loads(config.read_text(encoding="utf-8")))
    facts: dict[str, object] = {name: settings[name] for name in _SHOWN if name in settings}
    layers = facts.pop("layer_types", None)
    if isinstance(layers, list):
        names = cast("list[str]", layers)
        facts["layers"] = ", ".join(f"{names.count(kind)} {kind}" for kind in dict.fromkeys(names))
    weights = directory / "model.safetensors"
    facts["weights_bytes"] = weights.stat().st_size if weights.is_file() else 0
    facts["checksums"] = _checksums(directory)
    return {**facts, **_figures(directory)}


def _checksums(directory: Path) -> str:
    """Whether the files are those that SHA256SUMS names."""
    sums = directory / "SHA256SUMS"
    if not sums.is_file():
        return "no SHA256SUMS"
    lines = [line.split() for line in sums.read_text(encoding="utf-8").splitlines() if line.strip()]
    wrong = [name for digest, name in lines if _digest(directory / name) != digest]
    return "ok" if not wrong else f"differ: {', '.join(wrong)}"


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def _figures(directory: Path) -> dict[str, str]:
    """The table of measured figures in the model card."""
    card = directory / "MODEL_CARD.md"
    if not card.is_file():
        return {}
    text = card.read_text(encoding="utf-8").partition("## Figures")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {row[0].strip(): row[1].strip() for row in rows[1:] if len(row) > 1}
