"""Texts that are hard to cut, and a check of what comes out of the pieces."""

import random
from collections.abc import Iterator, Sequence

from adapters.text.tokenizer import HubTokenizer
from kernel.requests.detokenizer import IncrementalDetokenizer

__all__ = ["HARD", "difference", "random_ids"]

HARD = (
    "Hello, world! It's a test: 3.14 + 2 = 5.14; don't   you think?\n\n\tTabs and  spaces \r\n",
    "😀😀 👨‍👩‍👧‍👦🏳️‍🌈 👍🏽 🇩🇪🇫🇷 ☺️",
    "e\u0301 a\u0308\u0323 Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢ n\u0303",
    "家族で東京へ。𠮷野家 叱る 한국어 ไทย සිංහල ကမ္ဘာ ᚠᚢᚦ",
    "שלום עולם\u200f مرحبا بالعالم \u202bRTL\u202c \ufeff",
    "\x00\x01\x7f\u0085\u2028 \ufffd � \ue000 \U0010fffd",
    " leading space", "trailing space ", "  ", "\n", "a", "", "▁▁ ▁a ## ##b </w>",
)  # fmt: skip


def difference(tokenizer: HubTokenizer, ids: Sequence[int], batch: int = 1) -> str | None:
    """How streaming the ids differs from decoding them at once; ``None``: it doesn't."""
    detokenizer = IncrementalDetokenizer(tokenizer)
    pieces = [detokenizer.push(ids[at : at + batch]) for at in range(0, len(ids), batch)]
    pieces.append(detokenizer.finish())
    whole = tokenizer.decode(ids)
    return None if "".join(pieces) == whole else f"{list(ids)}: {pieces} is not {whole!r}"


def random_ids(tokenizer: HubTokenizer, rng: random.Random, count: int) -> Iterator[list[int]]:
    """Token sequences of all kinds: random ids, encoded text, both mixed, and text cut anywhere."""
    special = [token for token in range(tokenizer.vocab_size) if not tokenizer.decode([token])]
    for number in range(count):
        ids = tokenizer.encode("".join(_random_text(rng, rng.randrange(30))))
        match number % 5:
            case 0:
                ids = [rng.randrange(tokenizer.vocab_size) for _ in range(rng.randrange(60))]
            case 1:
                ids = ids[rng.randrange(len(ids) + 1) : rng.randrange(len(ids) + 1)]
            case 2 if special:
                for _ in range(rng.randrange(6)):
                    ids.insert(rng.randrange(len(ids) + 1), rng.choice(special))
            case 3:
                for _ in range(rng.randrange(6)):
                    ids.insert(rng.randrange(len(ids) + 1), rng.randrange(tokenizer.vocab_size))
            case _:
                ids = ids[: rng.randrange(len(ids) + 1)]
        yield ids


def _random_text(rng: random.Random, length: int) -> Iterator[str]:
    ranges = ((32, 127), (160, 0x500), (0x590, 0x700), (0x3040, 0x30FF), (0x4E00, 0x9FFF))
    for _ in range(length):
        start, end = rng.choice((*ranges, (0x1F300, 0x1FAFF), (0x300, 0x36F), (0x10000, 0x10400)))
        yield chr(rng.randrange(start, end))
        if rng.random() < 0.1:
            yield rng.choice((" ", "\n", "\u200d", "\ufe0f", "  "))
