"""Train the bundled model's tokenizer: byte-level BPE with one special token."""

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

__all__ = ["END_OF_TEXT", "TOKENIZER_FILE", "train_tokenizer"]

END_OF_TEXT = "<|endoftext|>"
TOKENIZER_FILE = "tokenizer.json"


def train_tokenizer(texts: Iterable[str], vocab_size: int, directory: Path) -> Tokenizer:
    """Learn merges from ``texts`` and save them; token 0 is the end of text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / TOKENIZER_FILE))
    return tokenizer
