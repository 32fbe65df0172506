"""The options of every command that samples."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from kernel import SamplingParams

__all__ = ["SAMPLING_NAMES", "params_from", "sampling_options"]

F = TypeVar("F", bound=Callable[..., Any])

SAMPLING_NAMES = ("max_tokens", "temperature", "top_p", "top_k", "seed", "stop")


def sampling_options(command: F) -> F:
    """Add the sampling parameters to a command, under their own names."""
    for option in (
        click.option("--stop", multiple=True, help="Text that ends the output; may be repeated."),
        click.option("--seed", type=int, help="Draw the same tokens each time."),
        click.option("--top-k", type=int, default=0, help="Keep the k likeliest tokens; 0: all."),
        click.option("--top-p", type=float, default=1.0, help="Keep this much probability."),
        click.option(
            "--temperature", type=float, default=0.8, show_default=True, help="0: greedy."
        ),
        click.option("--max-tokens", type=int, default=128, show_default=True),
    ):
        command = option(command)
    return command


def params_from(options: dict[str, Any]) -> SamplingParams:
    """The sampling parameters that the options ask for.

    Raises:
        kernel.ValidationError: a value is out of range or contradicts another.
    """
    return SamplingParams.from_dict({name: options[name] for name in SAMPLING_NAMES})
