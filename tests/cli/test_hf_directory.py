"""The commands on a directory that ``transformers`` itself wrote."""

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from adapters.cli import main
from tests.cli.hf_directory import Peer, write_directory

pytestmark = pytest.mark.timeout(90)

Written = tuple[Path, Peer, Peer]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    path = tmp_path_factory.mktemp("hf") / "granite"
    peer, tokenizer = write_directory(path)
    return path, peer, tokenizer


def greedy(peer: Peer, token_ids: list[int], count: int) -> list[int]:
    """What the peer itself would generate."""
    with torch.no_grad():
        found = peer.generate(torch.tensor([token_ids]), max_new_tokens=count, do_sample=False)
    ids: list[int] = found[0, len(token_ids) :].tolist()
    return ids


def test_generate_writes_the_peers_tokens(written: Written) -> None:
    """Many prompts of different length in one batch, each as if it were alone."""
    path, peer, tokenizer = written
    prompts = ["A slot has", "The pool lends it to a turn, the turn", "nobody"]
    command = ["generate", *prompts, "--model", str(path), "--max-tokens", "12", "--json"]

    result = CliRunner().invoke(main, [*command, "--temperature", "0"])

    assert result.exit_code == 0, result.output
    for prompt, line in zip(prompts, result.stdout.splitlines(), strict=True):
        assert json.loads(line)["token_ids"] == greedy(peer, tokenizer(prompt).input_ids, 12)


def test_the_models_own_parameters_are_the_default(written: Written) -> None:
    """generation_config.json says greedy; nobody has to say it again."""
    path, peer, tokenizer = written
    command = ["generate", "The type", "--model", str(path), "--max-tokens", "9", "--json"]

    result = CliRunner().invoke(main, command)

    assert result.exit_code == 0, result.output
    expected = greedy(peer, tokenizer("The type").input_ids, 9)
    assert json.loads(result.stdout)["token_ids"] == expected


def test_chat_answers_as_the_peer_does_to_the_whole_conversation(written: Written) -> None:
    """Two turns: only what is new is computed, and the second answer is that of the full text."""
    path, peer, tokenizer = written
    command = ["chat", "--model", str(path), "--max-tokens", "10", "--temperature", "0"]
    asked = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    ids: list[int] = []
    answers: list[str] = []
    for line in ("who owns it?", "and then?"):
        ids += tokenizer(("\n" if ids else "") + asked.format(line)).input_ids
        answer = greedy(peer, ids, 10)
        answers.append(tokenizer.decode(answer, skip_special_tokens=True))
        # By ids, since what a random model says is hardly ever whole characters.
        ids += answer if answer[-1] == end else [*answer, end]

    result = CliRunner().invoke(main, command, input="who owns it?\nand then?\n/quit\n")

    assert result.exit_code == 0, result.output
    for text in answers:
        assert text in result.stdout
