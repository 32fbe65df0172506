"""Fill in the bundled model's card, and write the checksums of its files."""

import hashlib
import json
from pathlib import Path
from string import Template

import attrs
import torch

from adapters.models.hybrid import HybridConfig
from adapters.training.corpus import SOURCES_FILE
from adapters.training.train import BATCH_TOKENS

__all__ = ["Figures", "write_card", "write_checksums"]

CARD_FILE = "MODEL_CARD.md"
CHECKSUMS_FILE = "SHA256SUMS"
TEMPLATE = Path(__file__).with_name("model_card.template.md")


@attrs.frozen
class Figures:
    """What ``adapters.training.evaluate`` measured."""

    bits_per_byte: float
    by_package: dict[str, float]
    held_out_bytes: int
    words: int
    known_share: float
    unknown: tuple[str, ...]
    """Words that were sampled and don't occur in the corpus."""
    parameters: int
    training_tokens: int
    """Tokens of one pass over the trained-on part."""
    seed: int


def write_card(model: Path, work_dir: Path, figures: Figures, sample: str) -> None:
    """Write MODEL_CARD.md from the template, the figures and the run's own records."""
    config = HybridConfig.load(model)
    sources = json.loads((work_dir / SOURCES_FILE).read_text(encoding="utf-8"))
    run = torch.load(work_dir / "checkpoint.pt")
    spent_s, steps, _ = run["progress"]
    tokens_read = steps * BATCH_TOKENS
    card = Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        name=config.name,
        parameters=f"{figures.parameters:,}",
        layers=config.num_layers,
        mamba_layers=len(config.mamba_layers),
        attention_layers=len(config.attention_layers),
        hidden_size=config.hidden_size,
        state_size=config.state_size,
        vocab_size=f"{config.vocab_size:,}",
        max_model_len=f"{config.max_model_len:,}",
        bits_per_byte=f"{figures.bits_per_byte:.3f}",
        held_out_bytes=f"{figures.held_out_bytes:,}",
        by_package="\n".join(
            f"| of these, {package} | {score:.3f} | |"
            for package, score in figures.by_package.items()
        ),
        words=f"{figures.words:,}",
        known_share=f"{figures.known_share:.1%}",
        unknown=", ".join(figures.unknown[:30]) or "none",
        seed=figures.seed,
        minutes=f"{spent_s / 60:.0f}",
        steps=f"{steps:,}",
        tokens=f"{tokens_read / 1e6:.1f}",
        epochs=f"{tokens_read / figures.training_tokens:.1f}",
        sources="\n".join(_source_row(source) for source in sources),
        sample="\n".join(f"> {line}" for line in sample.splitlines()[:6]),
    )
    (model / CARD_FILE).write_text(card, encoding="utf-8")


def _source_row(source: dict[str, str]) -> str:
    counts = f"{source['documents']} ({source['held_out']} held out) | {int(source['bytes']):,}"
    package = f"`{source['package']}` {source['version']}"
    digest = f"`{source['sha256']}`"
    return f"| {source['title']} | {package} | {source['licence']} | {counts} | {digest} |"


def write_checksums(model: Path) -> None:
    """Write SHA256SUMS over every other file of the directory (``sha256sum -c`` reads it)."""
    files = sorted(path for path in model.iterdir() if path.name != CHECKSUMS_FILE)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (model / CHECKSUMS_FILE).write_text("".join(lines), encoding="utf-8")
