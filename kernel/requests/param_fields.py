"""How the richer fields of ``SamplingParams`` are read: checked, and as hashable tuples."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from kernel import checks
from kernel.errors import ValidationError
from kernel.requests.logit_rules import LogitsProcessor

__all__ = ["BadWord", "allowed_ids", "bad_words", "logit_bias", "processors"]

BadWord = str | tuple[int, ...]


def logit_bias(
    value: Mapping[Any, float] | Iterable[tuple[Any, float]] | None,
) -> tuple[tuple[int, float], ...]:
    """Pairs of token id and bias, by id; ids may be digits, as JSON has no other keys."""
    if value is None:
        return ()
    given = cast("object", value)
    pairs = cast("Mapping[object, object]", value).items() if isinstance(value, Mapping) else given
    found: dict[int, float] = {}
    for pair in checks.items("logit_bias", pairs):
        if not isinstance(pair, tuple | list) or len(cast("Sequence[object]", pair)) != 2:
            why = "it must map token ids to numbers"
            raise ValidationError(parameter="logit_bias", value=given, why=why)
        key, bias = cast("tuple[object, object]", pair)
        if isinstance(key, str) and key.isascii() and key.isdigit():
            key = int(key)
        checks.integer("logit_bias", key, least=0)
        checks.number("logit_bias", bias, least=float("-inf"))
        token = cast("int", key)
        if token in found:
            why = f"token {token} is given twice"
            raise ValidationError(parameter="logit_bias", value=given, why=why)
        found[token] = float(cast("float", bias))
    return tuple(sorted(found.items()))


def bad_words(
    value: str | Sequence[str | Sequence[int]] | None,
) -> tuple[BadWord, ...]:
    """Each one a text or token ids; neither may be empty."""
    words = (value,) if isinstance(value, str) else checks.items("bad_words", value)
    found: list[BadWord] = []
    for word in words:
        # What is left of a blank text would ban the space itself.
        if isinstance(word, str) and word.strip():
            found.append(word)
        elif not isinstance(word, str) and (ids := checks.token_ids("bad_words", word)):
            found.append(ids)
        else:
            why = "each must be a str or a sequence of token ids, not empty"
            raise ValidationError(parameter="bad_words", value=value, why=why)
    return tuple(found)


def allowed_ids(value: Iterable[int] | None) -> tuple[int, ...] | None:
    """Token ids in order, each once; ``None`` allows all."""
    if value is None:
        return None
    found = checks.token_ids("allowed_token_ids", value)
    if not found:
        why = "nothing could be drawn; give at least one id, or None to allow all"
        raise ValidationError(parameter="allowed_token_ids", value=value, why=why)
    return tuple(sorted(set(found)))


def processors(value: Sequence[Callable[..., Any]] | None) -> tuple[Callable[..., Any], ...]:
    """Callables that take (generated, logits) or (prompt, generated, logits)."""
    found = checks.items("logits_processors", value)
    for call in found:
        if not callable(call) or LogitsProcessor.of(call) is None:
            why = "each must be callable as (generated, logits) or (prompt, generated, logits)"
            raise ValidationError(parameter="logits_processors", value=call, why=why)
    return cast("tuple[Callable[..., Any], ...]", found)
