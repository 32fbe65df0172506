"""Rows, rules and logits for tests of the sampler."""

import random
from typing import Any

import torch
from torch import Tensor

from kernel.requests.logit_rules import KnownTokens, LogitRules
from kernel.step import RowSampling

__all__ = ["how", "known_of", "random_logits", "random_row", "ruled"]


def random_logits(rows: int, vocabulary: int, seed: int, scale: float = 3.0) -> Tensor:
    """[rows, vocabulary] in float64."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, vocabulary, generator=generator, dtype=torch.float64) * scale


def known_of(prompt: list[int], generated: list[int]) -> KnownTokens:
    """A turn's tokens, of which half of the prompt is its session's history."""
    half = len(prompt) // 2
    return KnownTokens(prompt[:half], half, prompt[half:] + generated, len(prompt) - half)


def how(
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    *,
    key: int = 1,
    index: int = 0,
    banned: tuple[int, ...] = (),
    rules: LogitRules | None = None,
) -> RowSampling:
    return RowSampling(temperature, top_k, top_p, key, index, banned, rules)


def ruled(
    prompt: list[int] | None = None,
    generated: list[int] | None = None,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    key: int = 1,
    **rules: Any,
) -> RowSampling:
    """A row of a turn that has generated some tokens."""
    tokens = [] if generated is None else generated
    known = known_of(prompt or [], tokens)
    return RowSampling(
        temperature, top_k, top_p, key, len(tokens), (), LogitRules(known=known, **rules)
    )


class Parity:
    """Allows even ids after an even number of tokens, odd ids after an odd one."""

    def fill(self, generated: Any, into: Any, /) -> None:
        into &= -0x55555556 if len(generated) % 2 else 0x55555555

    def is_complete(self, generated: Any, /) -> bool:
        return False


def random_row(draws: random.Random, vocabulary: int) -> RowSampling:
    """A row of any kind, with rules or without."""
    tokens = [draws.randrange(vocabulary) for _ in range(30)]
    index = draws.randrange(15)
    choices: list[tuple[str, Any]] = [
        ("min_p", draws.choice([0.01, 0.3, 1.0])),
        ("typical_p", draws.choice([0.2, 0.9])),
        ("repetition_penalty", draws.choice([0.5, 1.3])),
        ("frequency_penalty", draws.choice([-0.5, 0.7])),
        ("presence_penalty", draws.choice([-0.5, 0.7])),
        ("logit_bias", tuple((token, draws.uniform(-9, 9)) for token in sorted(set(tokens[:4])))),
        ("bad_words", ((tokens[14 + index], 3), (5,), (tokens[13 + index], tokens[14 + index], 7))),
        ("allowed_token_ids", tuple(sorted({*tokens[:9], 1, 2, 9}))),
        ("constraint", Parity()),
        ("logprobs", draws.choice([0, 3])),
    ]
    rules = {name: value for name, value in choices if draws.random() < 0.25}
    row = how(
        draws.choice([0.0, 0.05, 0.7, 1.0, 2.0]),
        draws.choice([0, 0, 1, 2, 20, vocabulary]),
        draws.choice([1.0, 1.0, 0.95, 0.5]),
        key=draws.getrandbits(64),
        index=index,
        banned=tuple(draws.sample(range(vocabulary), draws.choice([0, 0, 3]))),
    )
    if draws.random() < 0.3:
        return row
    made = LogitRules(known=known_of(tokens[:15], tokens[15:]), **rules)
    return RowSampling(row.temperature, row.top_k, row.top_p, row.key, index, row.banned, made)
