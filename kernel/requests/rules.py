"""What a request's sampling asks of each draw, worked out in its caller's task.

Here the tokenizer may be called and the vocabulary is known. What comes out is values for the
device; no actor looks into them.
"""

from collections.abc import Callable, Sequence
from itertools import chain

from kernel import checks
from kernel.errors import ValidationError
from kernel.params import SamplingParams
from kernel.requests.logit_rules import LogitRules, LogitsProcessor
from kernel.step import ModelSpec, SpecialTextTokenizer, Tokenizer

__all__ = ["SpecialText", "check_vocabulary", "rules_of"]


def check_vocabulary(parameter: str, tokens: Sequence[int], model: ModelSpec) -> None:
    """Refuse ids that the model has no logits for."""
    if tokens and max(tokens) >= model.vocab_size:
        raise ValidationError(
            parameter=parameter,
            value=max(tokens),
            why=f"a token id of {model.name} is 0 to {model.vocab_size - 1}",
        )


def rules_of(
    params: SamplingParams,
    model: ModelSpec,
    tokenizer: Callable[[], Tokenizer],
    *,
    can_constrain: bool = False,
) -> LogitRules | None:
    """The rules of one request, its constraint left out; ``None``: it has none.

    Args:
        tokenizer: gives the model's tokenizer, or raises; called where texts must be encoded.

        can_constrain: whether the device compiles forms of output.

    Raises:
        ValidationError: an id is none of the model's, a text has no tokens, or a form of output is
            asked of a device that can't hold to it.
    """
    _check_ids(params, model)
    if params.structured_outputs is not None and not can_constrain:
        raise ValidationError(
            parameter="structured_outputs",
            value=params.structured_outputs,
            why="this device can't constrain its output; leave it out",
        )
    rules = LogitRules(
        logit_bias=params.logit_bias,
        processors=_processors(params),
        repetition_penalty=params.repetition_penalty,
        frequency_penalty=params.frequency_penalty,
        presence_penalty=params.presence_penalty,
        bad_words=_encode_bad_words(params, model, tokenizer),
        allowed_token_ids=params.allowed_token_ids,
        min_p=params.min_p,
        typical_p=params.typical_p,
        logprobs=params.logprobs,
    )
    return rules if rules.asks else None


def _check_ids(params: SamplingParams, model: ModelSpec) -> None:
    check_vocabulary("stop_token_ids", params.stop_token_ids, model)
    check_vocabulary("allowed_token_ids", params.allowed_token_ids or (), model)
    check_vocabulary("logit_bias", [token for token, _ in params.logit_bias], model)
    for name, count in (
        ("logprobs", params.logprobs),
        ("prompt_logprobs", params.prompt_logprobs),
    ):
        if count is not None and count > model.vocab_size:
            why = f"{model.name} has {model.vocab_size} tokens; lower it, or pass -1 for all"
            raise ValidationError(parameter=name, value=count, why=why)


def _processors(params: SamplingParams) -> tuple[LogitsProcessor, ...]:
    found = map(LogitsProcessor.of, params.logits_processors)
    return tuple(processor for processor in found if processor is not None)


def _encode_bad_words(
    params: SamplingParams, model: ModelSpec, tokenizer: Callable[[], Tokenizer]
) -> tuple[tuple[int, ...], ...]:
    """Token ids of each bad word; a text also as it is written after a space (as vLLM)."""
    found: dict[tuple[int, ...], None] = {}
    for word in params.bad_words:
        if not isinstance(word, str):
            found[word] = None
            continue
        checks.encodable("bad_words", word)
        bare = word.lstrip()
        for spelling in (bare, f" {bare}"):
            ids = tuple(tokenizer().encode(spelling))
            if not ids:
                why = "the model's tokenizer makes no tokens of it"
                raise ValidationError(parameter="bad_words", value=word, why=why)
            found[ids] = None
    check_vocabulary("bad_words", tuple(chain.from_iterable(found)), model)
    return tuple(found)


class SpecialText:
    """A tokenizer whose special tokens have a text; for ``skip_special_tokens=False``.

    Raises:
        ValidationError: the tokenizer can't give them one.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        if not isinstance(tokenizer, SpecialTextTokenizer):
            raise ValidationError(
                parameter="skip_special_tokens",
                value=False,
                why=f"{type(tokenizer).__name__} gives special tokens no text; leave it out",
            )
        self._tokenizer = tokenizer

    @property
    def vocab_size(self) -> int:
        return self._tokenizer.vocab_size

    def encode(self, text: str, /) -> list[int]:
        return self._tokenizer.encode(text)

    def decode(self, token_ids: Sequence[int], /) -> str:
        return self._tokenizer.decode_with_special(token_ids)
