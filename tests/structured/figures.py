"""What structured output costs on a vocabulary: ``python -m tests.structured.figures TOKENIZER``.

TOKENIZER is a tokenizer.json, the bundled one by default. CPU seconds of this process are measured,
on one thread, so that a busy machine lies less.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
from tokenizers import Tokenizer

from adapters.models.directory import model_path
from adapters.structured import LibraryCompiler
from adapters.structured.constraint import GrammarConstraint
from adapters.torch_device.sampling import draw
from kernel import StructuredOutputs
from kernel.requests.logit_rules import KnownTokens, LogitRules
from kernel.step import RowSampling

RECORD = {
    "name": "Ada Lovelace, Countess",
    "age": 36,
    "email": "ada@example.org",
    "tags": ["red", "blue"],
    "address": {"street": "St James's Square 12", "city": "London", "zip": "12345"},
    "active": True,
    "score": 12.75,
}
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "email": {"type": "string"},
        "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}},
        "address": {
            "type": "object",
            "properties": {
                "street": {"type": "string"},
                "city": {"type": "string"},
                "zip": {"type": "string", "pattern": "^[0-9]{5}$"},
            },
            "required": ["street", "city", "zip"],
            "additionalProperties": False,
        },
        "active": {"type": "boolean"},
        "score": {"type": "number"},
    },
    "required": [*RECORD],
    "additionalProperties": False,
}
TURNS = 5


def spent(work: Callable[[], object]) -> float:
    """CPU milliseconds of a call."""
    begun = time.process_time_ns()
    work()
    return (time.process_time_ns() - begun) / 1e6


def figures(path: Path) -> Iterator[str]:
    """The figures, one a line."""
    torch.set_num_threads(1)
    library = Tokenizer.from_file(str(path))
    size, tokens = library.get_vocab_size(), library.encode(json.dumps(RECORD)).ids
    compiler = LibraryCompiler(library.to_str, ())
    form = StructuredOutputs(json=SCHEMA)

    def begin(wanted: StructuredOutputs = form) -> GrammarConstraint:
        return compiler.constraint(wanted, stop_ids=frozenset({0}), min_tokens=0)

    yield f"vocabulary of {size} tokens, a record of {len(tokens)}"
    loads = partial(begin, StructuredOutputs(regex="a"))
    yield f"vocabulary, once an engine  {spent(loads):9.1f} ms"
    yield f"schema, once a form         {spent(begin):9.2f} ms"
    yield f"constraint, once a turn     {spent(begin) * 1e3:9.1f} µs"
    mask = torch.empty(-(-size // 32), dtype=torch.int32)
    for turn in range(TURNS):
        constraint = begin()
        each = [
            spent(partial(constraint.fill, tokens[:at], mask)) * 1e3 for at in range(len(tokens))
        ]
        if turn in (0, TURNS - 1):
            name = "first turn" if turn == 0 else "later turn"
            yield f"mask, a token, {name}   {statistics.mean(each):9.1f} µs, most {max(each):.0f}"
    for rows in (1, 64):
        known = KnownTokens((), 0, tokens, 0)
        rules = [LogitRules(known=known, constraint=begin()) for _ in range(rows)]
        logits = torch.randn(rows, size)
        took = [
            min(spent(partial(draw, logits.clone(), sampled)) for _ in range(9))
            for sampled in (
                [RowSampling(0.0, 0, 1.0, 0, 30) for _ in rules],
                [RowSampling(0.0, 0, 1.0, 0, 30, (), rule) for rule in rules],
            )
        ]
        yield f"draw, {rows:2} rows, free and constrained {took[0]:9.2f} {took[1]:9.2f} ms"


if __name__ == "__main__":
    chosen = Path(sys.argv[1]) if sys.argv[1:] else model_path("bundled") / "tokenizer.json"
    for line in figures(chosen):
        sys.stdout.write(line + "\n")
