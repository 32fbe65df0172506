"""A real GGUF file, here and in transformers: tokens, text, and logits in float32 on the CPU.

    python -m tests.gguf.real PATH/TO/MODEL.gguf

Needs transformers and accelerate; compares greedy tokens of a few prompts, the logits of each, and
what both tokenizers make of them.
"""

import argparse
import importlib
import sys
import time
from pathlib import Path
from typing import Any

import click
import torch
from torch import Tensor

from adapters.models.gguf.reader import open_gguf
from adapters.models.gguf.text import open_gguf_text
from tests.gguf.models import device_of
from tests.parity.ours import Desk

_PROMPTS = (
    "The capital of France is",
    "def fibonacci(n):\n    ",
    "Once upon a time, there was a little",
    "Water boils at 100 degrees. Ice melts at",
    "Überraschung: 12 345 naïve café 日本語 🙂",
)
_TOKENS = 16
_LOGIT = 1e-3


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("path", type=Path)
    path: Path = options.parse_args().path
    torch.set_num_threads(1)
    opened = open_gguf(path)
    tokenizer = open_gguf_text(opened).tokenizer
    begun = time.perf_counter()
    desk = Desk(device_of(opened.config, opened.store))
    click.echo(f"loaded in {time.perf_counter() - begun:.1f} s")
    library: Any = importlib.import_module("transformers")
    asked = {"gguf_file": path.name, "dtype": torch.float32}
    model = library.AutoModelForCausalLM.from_pretrained(path.parent, **asked)
    words = library.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    worst, failed = 0.0, 0
    for prompt in _PROMPTS:
        ids = tokenizer.encode(prompt)
        same_ids = ids == words.encode(prompt, add_special_tokens=False)
        ours, found = _greedy(desk, ids)
        theirs = _peer_logits(model, ids + ours[:-1])[len(ids) - 1 :]
        errors = [float((a - b).abs().max()) for a, b in zip(found, theirs, strict=True)]
        same = ours == [int(row.argmax()) for row in theirs]
        worst = max(worst, *errors)
        failed += not (same and same_ids)
        click.echo(f"{prompt!r} -> {tokenizer.decode(ours)!r}")
        click.echo(
            f"    ids equal: {same_ids}; tokens equal: {same}; logits within {max(errors):.1e}"
        )
    click.echo(f"largest difference of a logit: {worst:.1e}")
    return 1 if failed or worst > _LOGIT else 0


def _greedy(desk: Desk, ids: list[int]) -> tuple[list[int], list[Tensor]]:
    """The likeliest tokens one after the other, each after the whole text so far."""
    found: list[Tensor] = []
    known = list(ids)
    for _ in range(_TOKENS):
        sequence = desk.begin(known)
        found.append(desk.run([(sequence, len(known))])[0].reshape(-1))
        desk.end(sequence)
        known.append(int(found[-1].argmax()))
    return known[len(ids) :], found


def _peer_logits(model: Any, ids: list[int]) -> Tensor:
    with torch.no_grad():
        logits: Tensor = model(torch.tensor([ids])).logits[0]
    return logits.double()


if __name__ == "__main__":
    sys.exit(main())
