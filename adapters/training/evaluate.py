"""Measure a model of ours: bits per byte on held-out chapters, and whether its words are words.

The first figure comes from the training code's forward pass. The samples come through the
engine's public door, so that they are what a user gets. ``--write`` puts the figures into the
model card and renews the checksums.

    python -m adapters.training.evaluate --work-dir DIR --model adapters/models/bundled --write
"""

import argparse
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import anyio
import attrs
import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from adapters.models.hybrid import HybridConfig
from adapters.models.weights import load_weights
from adapters.torch_device.factory import open_torch
from adapters.training.card import Figures, write_card, write_checksums
from adapters.training.chunked import chunked_logits
from adapters.training.corpus import Document, read_corpus
from adapters.training.data import encode_documents
from adapters.training.tokenizer import TOKENIZER_FILE
from kernel import Engine, EngineConfig, SamplingParams

__all__ = ["bits_per_byte", "evaluate", "known_words", "words"]

WINDOW = 2048
WORDS = 5000
TEMPERATURE = 0.8
SAMPLE_TOKENS = 256
ROUND = 16


@attrs.frozen
class Score:
    """Bits spent on some text, and its bytes."""

    bits: float = 0.0
    size: int = 0

    def __add__(self, other: "Score") -> "Score":
        return Score(self.bits + other.bits, self.size + other.size)

    @property
    def per_byte(self) -> float:
        return self.bits / self.size


def words(text: str) -> list[str]:
    """The words of a text in lower case; an apostrophe may stand inside one."""
    return re.findall(r"[a-z]+(?:'[a-z]+)*", text.lower())


def known_words(documents: Iterable[Document]) -> frozenset[str]:
    """Every word that occurs in the documents."""
    return frozenset(word for document in documents for word in words(document.text))


@torch.no_grad()
def bits_per_byte(
    config: HybridConfig, weights: dict[str, Tensor], token_ids: Sequence[int], size: int
) -> Score:
    """Score one document of ``size`` bytes; ``token_ids[0]`` is given, the others are predicted.

    The document is read in windows of 2,048 tokens, each from an empty state: no figure profits
    from a context longer than those that were trained.
    """
    nats = 0.0
    for start in range(0, len(token_ids) - 1, WINDOW):
        window = torch.tensor(token_ids[start : start + WINDOW + 1])
        count = len(window) - 1
        inputs = functional.pad(window[:-1], (0, -count % config.chunk_size))
        logits = chunked_logits(config, weights, inputs[None])[0, :count]
        nats += functional.cross_entropy(logits, window[1:], reduction="sum").item()
    return Score(nats / math.log(2), size)


async def sample_words(model: Path, seed: int) -> tuple[list[str], list[str]]:
    """The first 5,000 whole words of texts sampled from nothing, and the texts."""
    texts: list[str] = []
    found: list[str] = []
    opened = open_torch(model=str(model), device="cpu", dtype="float32")
    config = EngineConfig(model=str(model), log_events=False)
    async with Engine.open(config, device=opened) as engine:
        while len(found) < WORDS:
            params = [
                SamplingParams(
                    temperature=TEMPERATURE, max_tokens=SAMPLE_TOKENS, seed=seed + len(texts) + row
                )
                for row in range(ROUND)
            ]
            for output in await engine.map([[0]] * ROUND, params):
                texts.append(output.text)
                cut = output.finish_reason == "length"
                whole = output.text.rsplit(" ", 1)[0] if cut else output.text
                found.extend(words(whole))
    opened.device.close()
    return found[:WORDS], texts


def evaluate(work_dir: Path, model: Path, seed: int) -> tuple[Figures, list[str]]:
    """All figures of a model directory, and the sampled texts."""
    documents = read_corpus(work_dir)
    held_out = [document for document in documents if document.held_out]
    training = [document for document in documents if not document.held_out]
    tokenizer = Tokenizer.from_file(str(model / TOKENIZER_FILE))
    config, weights = load_weights(model, dtype=torch.float32)
    by_package: dict[str, Score] = {}
    for document, ids in zip(held_out, encode_documents(tokenizer, held_out), strict=True):
        score = bits_per_byte(config, weights, ids, len(document.text))
        by_package[document.package] = by_package.get(document.package, Score()) + score
    vocabulary = known_words(training)
    sampled, texts = anyio.run(sample_words, model, seed)
    unknown = sorted({word for word in sampled if word not in vocabulary})
    figures = Figures(
        bits_per_byte=sum(by_package.values(), Score()).per_byte,
        by_package={package: score.per_byte for package, score in by_package.items()},
        held_out_bytes=sum(score.size for score in by_package.values()),
        words=len(sampled),
        known_share=sum(word in vocabulary for word in sampled) / len(sampled),
        unknown=tuple(unknown),
        parameters=sum(weight.numel() for weight in weights.values()),
        training_tokens=sum(map(len, encode_documents(tokenizer, training))),
        seed=seed,
    )
    return figures, texts


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the bundled model.")
    parser.add_argument("--work-dir", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="renew model card and checksums")
    options = parser.parse_args()
    work_dir: Path = options.work_dir
    model: Path = options.model
    torch.set_flush_denormal(True)
    figures, texts = evaluate(work_dir, model, options.seed)
    print(f"held-out bits per byte: {figures.bits_per_byte:.4f} (goal: at most 1.5)")
    for package, score in figures.by_package.items():
        print(f"    {package}: {score:.4f}")
    print(f"of {figures.words} words at temperature {TEMPERATURE}, in the corpus:", end=" ")
    print(f"{figures.known_share:.2%} (goal: at least 90 %)")
    print(f"    not in it: {', '.join(figures.unknown[:40])}")
    print(f"\n{texts[0]}\n")
    if options.write:
        write_card(model, work_dir, figures, texts[0])
        write_checksums(model)


if __name__ == "__main__":
    main()
