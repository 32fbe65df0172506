"""The options of every command that samples."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import attrs
import click

from kernel import SamplingParams

__all__ = ["LOGPROB_NAMES", "SAMPLING_NAMES", "logprob_options", "params_from", "sampling_options"]

F = TypeVar("F", bound=Callable[..., Any])

_TEMPERATURE = 0.8
_MAX_TOKENS = 128
SAMPLING_NAMES = (
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "typical_p",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "bad_words",
    "allowed_token_ids",
    "min_tokens",
    "stop",
    "stop_token_ids",
    "ignore_eos",
    "skip_special_tokens",
)
LOGPROB_NAMES = ("logprobs", "prompt_logprobs")


def _read_biases(
    _context: click.Context, _option: click.Parameter, given: tuple[str, ...]
) -> tuple[tuple[str, float], ...]:
    """Pairs of token id and bias from texts like ``17=-2.5``."""
    found: list[tuple[str, float]] = []
    for text in given:
        token, _, bias = text.partition("=")
        try:
            found.append((token, float(bias)))
        except ValueError:
            raise click.BadParameter(f"{text!r} is not like 17=-2.5") from None
    return tuple(found)


def sampling_options(command: F) -> F:
    """Add the sampling parameters to a command, under their own names."""
    return _add(
        command,
        (
            click.option(
                "--max-tokens", type=int, help=f"Not given: {_MAX_TOKENS}, or the model's."
            ),
            click.option(
                "--temperature",
                type=float,
                help=f"0: greedy. Not given: as the model's makers say, else {_TEMPERATURE}.",
            ),
            click.option("--top-p", type=float, help="Keep this much probability."),
            click.option("--top-k", type=int, help="Keep the k likeliest tokens; 0: all."),
            click.option(
                "--min-p", type=float, help="Keep tokens this likely beside the likeliest."
            ),
            click.option("--typical-p", type=float, help="Keep this much of what is as expected."),
            click.option("--seed", type=int, help="Draw the same tokens each time."),
            *_rule_options(),
            *_end_options(),
        ),
    )


def _rule_options() -> Sequence[Callable[[F], F]]:
    return (
        click.option("--presence-penalty", type=float, help="Lower what was generated, once."),
        click.option("--frequency-penalty", type=float, help="Lower it for each time; -2 to 2."),
        click.option("--repetition-penalty", type=float, help="Above 1: repeat less."),
        click.option(
            "--logit-bias",
            metavar="ID=BIAS",
            multiple=True,
            callback=_read_biases,
            help="Added to the logit of a token; repeatable.",
        ),
        click.option(
            "--bad-word", "bad_words", multiple=True, help="Text that may not come; repeatable."
        ),
        click.option(
            "--allowed-token-id",
            "allowed_token_ids",
            type=int,
            multiple=True,
            help="Draw among these ids alone; repeatable.",
        ),
    )


def _end_options() -> Sequence[Callable[[F], F]]:
    return (
        click.option("--min-tokens", type=int, help="Tokens before the text may end."),
        click.option("--stop", multiple=True, help="Text that ends the output; may be repeated."),
        click.option(
            "--stop-token-id", "stop_token_ids", type=int, multiple=True, help="The same by id."
        ),
        click.option("--ignore-eos", is_flag=True, default=None, help="Go on after an end."),
        click.option(
            "--special-tokens",
            "skip_special_tokens",
            flag_value=False,
            type=bool,
            default=None,
            help="Show special tokens by name.",
        ),
    )


def logprob_options(command: F) -> F:
    """Add the log-probabilities, for a command that prints them."""
    return _add(
        command,
        (
            click.option("--logprobs", type=int, help="So many of the likeliest (--json)."),
            click.option("--prompt-logprobs", type=int, help="The same of the prompt (--json)."),
        ),
    )


def _add(command: F, options: Sequence[Callable[[F], F]]) -> F:
    for option in reversed(options):
        command = option(command)
    return command


def params_from(options: dict[str, Any], model: SamplingParams | None = None) -> SamplingParams:
    """The sampling parameters that the options ask for.

    Args:
        options: by name; ``None`` where one wasn't given.
        model: the model's own (``ModelSpec.default_params``), for those that weren't.

    Raises:
        kernel.ValidationError: a value is out of range or contradicts another.
    """
    names = (*SAMPLING_NAMES, *LOGPROB_NAMES)
    given = {name: options[name] for name in names if options.get(name) not in (None, ())}
    base = model or SamplingParams(temperature=_TEMPERATURE)
    if base.max_tokens is None:
        given.setdefault("max_tokens", _MAX_TOKENS)
    return attrs.evolve(base, **given)
