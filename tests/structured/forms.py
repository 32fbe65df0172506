"""What the tests of structured output share: the bundled vocabulary, and a look at a mask."""

from collections.abc import Iterable, Sequence
from functools import cache

import torch
from tokenizers import Tokenizer

from adapters.models.directory import model_path
from adapters.structured import LibraryCompiler
from adapters.structured.constraint import GrammarConstraint
from adapters.torch_device.sampling.arrays import numbers
from kernel import StructuredOutputs

VOCABULARY = 2048
EOS = 0
ENDS = frozenset({EOS})

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["red", "green"]}, "maxItems": 1},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}


@cache
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(model_path("bundled") / "tokenizer.json"))


@cache
def compiler() -> LibraryCompiler:
    """One for all tests that don't look into it; a constraint of it belongs to its caller."""
    return LibraryCompiler(tokenizer().to_str, (EOS,))


def ids(text: str) -> list[int]:
    return tokenizer().encode(text).ids


def constraint_of(
    form: StructuredOutputs, *, stop_ids: Iterable[int] = ENDS, min_tokens: int = 0
) -> GrammarConstraint:
    return compiler().constraint(form, stop_ids=frozenset(stop_ids), min_tokens=min_tokens)


def allowed(
    constraint: GrammarConstraint, generated: Sequence[int], vocabulary: int = VOCABULARY
) -> list[int]:
    """The token ids that may follow, read from the mask as a device reads it."""
    mask = torch.full((-(-vocabulary // 32),), -1, dtype=torch.int32)
    constraint.fill(generated, mask)
    bits = (mask[:, None] >> torch.arange(32)) & 1
    return [token for token, bit in enumerate(numbers(bits.flatten())) if bit]


def takes(form: StructuredOutputs, text: str) -> bool:
    """Whether a text has a form: each of its tokens is allowed, and then an end."""
    constraint, taken = constraint_of(form), list[int]()
    for token in [*ids(text), EOS]:
        if token not in allowed(constraint, taken):
            return False
        taken.append(token)
    return True
