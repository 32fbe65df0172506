"""The options of every command that samples."""

from collections.abc import Callable
from typing import Any, TypeVar

import attrs
import click

from kernel import SamplingParams

__all__ = ["SAMPLING_NAMES", "params_from", "sampling_options"]

F = TypeVar("F", bound=Callable[..., Any])

_TEMPERATURE = 0.8
_MAX_TOKENS = 128
SAMPLING_NAMES = ("max_tokens", "temperature", "top_p", "top_k", "seed", "stop")


def sampling_options(command: F) -> F:
    """Add the sampling parameters to a command, under their own names."""
    for option in (
        click.option("--stop", multiple=True, help="Text that ends the output; may be repeated."),
        click.option("--seed", type=int, help="Draw the same tokens each time."),
        click.option("--top-k", type=int, help="Keep the k likeliest tokens; 0: all."),
        click.option("--top-p", type=float, help="Keep this much probability."),
        click.option(
            "--temperature",
            type=float,
            help=f"0: greedy. Not given: as the model's makers say, else {_TEMPERATURE}.",
        ),
        click.option("--max-tokens", type=int, help=f"Not given: {_MAX_TOKENS}, or the model's."),
    ):
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
    given = {name: options[name] for name in SAMPLING_NAMES if options[name] not in (None, ())}
    base = model or SamplingParams(temperature=_TEMPERATURE)
    if base.max_tokens is None:
        given.setdefault("max_tokens", _MAX_TOKENS)
    return attrs.evolve(base, **given)
