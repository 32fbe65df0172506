"""The model that ships in the package: whole, small enough, and as good as its card says."""

import hashlib
import re
from pathlib import Path

import pytest
import torch

import adapters.models
from adapters.models.reference import reference_logits
from adapters.models.weights import load_weights
from adapters.text.tokenizer import HubTokenizer

BUNDLED = Path(adapters.models.__file__).with_name("bundled")
FILES = ("MODEL_CARD.md", "config.json", "model.safetensors", "tokenizer.json")


def test_every_file_has_its_checksum() -> None:
    """A file changed by hand, or by a line-ending filter, is not the model that was measured."""
    lines = (BUNDLED / "SHA256SUMS").read_text().splitlines()
    stated = {name: digest for digest, name in (line.split("  ") for line in lines)}

    found = {name: hashlib.sha256((BUNDLED / name).read_bytes()).hexdigest() for name in FILES}

    assert stated == found


def test_the_weights_fit_the_package() -> None:
    """16 MB is the bound that keeps the wheel an ordinary download."""
    assert (BUNDLED / "model.safetensors").stat().st_size <= 16_000_000


def test_it_is_a_hybrid_with_an_end_of_text() -> None:
    """Both kinds of layer, or the demo would show only half of what the engine manages."""
    config, _ = load_weights(BUNDLED)
    tokenizer = HubTokenizer.load(BUNDLED / "tokenizer.json")

    assert config.mamba_layers
    assert config.attention_layers
    assert config.vocab_size == tokenizer.vocab_size
    assert config.eos_token_ids == (0,)
    assert tokenizer.decode([0]) == ""


@pytest.mark.parametrize("text", ["In the beginning", "naïve café — “quoted” 😀", "\x00\n\t"])
def test_any_text_survives_the_tokenizer(text: str) -> None:
    """Byte-level: nothing that a user types is unknown, though the corpus is plain ASCII."""
    tokenizer = HubTokenizer.load(BUNDLED / "tokenizer.json")

    assert text == tokenizer.decode(tokenizer.encode(text))


def test_the_card_states_that_both_goals_are_met() -> None:
    """The figures are computed from the corpus, which isn't here; the card carries them."""
    card = (BUNDLED / "MODEL_CARD.md").read_text()
    bits = re.search(r"held-out chapters [^|]*\| ([\d.]+) \|", card)
    share = re.search(r"occurs in the corpus \| ([\d.]+)% \|", card)

    assert bits is not None
    assert share is not None
    assert float(bits[1]) <= 1.5
    assert float(share[1]) >= 90


def test_it_expects_what_it_was_trained_on() -> None:
    """Weights that load but are garbled would score near the 11 bits a token of pure chance."""
    config, weights = load_weights(BUNDLED)
    tokenizer = HubTokenizer.load(BUNDLED / "tokenizer.json")
    text = "And it came to pass in those days, that he went out into a mountain to pray."
    ids = torch.tensor([[0, *tokenizer.encode(text)]])

    logits = reference_logits(config, weights, ids)[0, :-1]
    bits = torch.nn.functional.cross_entropy(logits, ids[0, 1:]).item() / 0.6931

    assert bits < 5
