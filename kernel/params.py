"""How one turn draws its tokens and where it ends; names and meanings follow vLLM."""

from collections.abc import Mapping, Sequence
from typing import Any, Self, cast

import attrs

from kernel import checks
from kernel.errors import ValidationError
from kernel.foreign_params import from_hugging_face, from_openai

__all__ = ["SamplingParams"]

_SEED_MAX = 2**64 - 1


def _stops(value: str | Sequence[str] | None) -> tuple[str, ...]:
    return checks.strings("stop", value)


def _stop_ids(value: Sequence[int] | None) -> tuple[int, ...]:
    return checks.token_ids("stop_token_ids", value)


def _keep_all(value: int) -> int:
    # vLLM spells "keep all" 0 or -1; any other negative number is refused.
    return 0 if value == -1 else value


@attrs.frozen(kw_only=True)
class SamplingParams:
    """How one turn is sampled and stopped; checked whole when it is built.

    Raises:
        ValidationError: a value is out of range or contradicts another.
    """

    temperature: float = 1.0
    """0 is greedy: the likeliest token, the lowest id among equals."""
    top_p: float = 1.0
    """Keep the smallest set of likeliest tokens whose probability reaches this; 0 < top_p <= 1."""
    top_k: int = attrs.field(default=0, converter=_keep_all)
    """Keep the k likeliest tokens; 0 or -1 keeps all."""
    seed: int | None = None
    """The draws are a function of (seed, turn, token index), seed in 0 to 2**64 - 1; ``None``: one
    made of the engine's seed and the request's id."""
    max_tokens: int | None = None
    """Most tokens to generate; ``None``: as many as model and pool hold, not 16 or 20."""
    min_tokens: int = 0
    """Tokens to generate before end-of-sequence, a stop token id or a stop string may end."""
    stop: tuple[str, ...] = attrs.field(default=(), converter=_stops)
    """A string or strings that end the turn; they may span tokens."""
    stop_token_ids: tuple[int, ...] = attrs.field(default=(), converter=_stop_ids)
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    """Draw on after an end-of-sequence token."""
    detokenize: bool = True
    """False: outputs carry token ids and no text."""

    def __attrs_post_init__(self) -> None:
        self._check_distribution()
        self._check_length()
        for name in ("include_stop_str_in_output", "ignore_eos", "detokenize"):
            checks.truth(name, getattr(self, name))
        if self.stop and not self.detokenize:
            raise ValidationError(
                parameter="stop", value=self.stop, why="stop strings need detokenize=True"
            )

    def _check_distribution(self) -> None:
        checks.number("temperature", self.temperature)
        checks.number("top_p", self.top_p, above=0)
        if self.top_p > 1:
            raise ValidationError(parameter="top_p", value=self.top_p, why="it must be at most 1")
        checks.integer("top_k", self.top_k, least=0)
        if self.seed is not None:
            checks.integer("seed", self.seed, least=0, most=_SEED_MAX)

    def _check_length(self) -> None:
        checks.integer("min_tokens", self.min_tokens, least=0)
        if self.max_tokens is None:
            return
        checks.integer("max_tokens", self.max_tokens, least=1)
        if self.min_tokens > self.max_tokens:
            raise ValidationError(
                parameter="min_tokens",
                value=self.min_tokens,
                why=f"it is greater than max_tokens={self.max_tokens}; lower it",
            )

    @classmethod
    def from_dict(cls, given: Mapping[str, object]) -> Self:
        """Build from our own names, as read from JSON or a command line.

        Raises:
            ValidationError: an unknown name (the message tells the near ones) or a bad value.
        """
        checks.known_names(given, attrs.fields_dict(cls), of="SamplingParams")
        return cls(**cast("dict[str, Any]", dict(given)))

    @classmethod
    def from_hf(cls, generation_config: Mapping[str, object]) -> Self:
        """Build from a Hugging Face ``GenerationConfig`` as a mapping (its ``to_dict()``).

        ``do_sample=False`` is temperature 0; ``max_new_tokens``, ``min_new_tokens``,
        ``stop_strings`` and ``eos_token_id`` take our names. What is not given keeps our default.

        Raises:
            ValidationError: a key that Tenure doesn't serve, at a value that changes the output.
        """
        return cls.from_dict(from_hugging_face(generation_config))

    @classmethod
    def from_openai(cls, request: Mapping[str, object]) -> Self:
        """Build from the sampling keys of an OpenAI request, vLLM's additions included.

        Raises:
            ValidationError: a key that Tenure doesn't serve, at a value that changes the output.
        """
        return cls.from_dict(from_openai(request))
