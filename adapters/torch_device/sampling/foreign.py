"""Code that isn't ours, run for one row under its own guard: logits processors and constraints.

Whatever it raises ends its own turn. The error that the caller gets carries its traceback as a
note: the frames themselves would keep the step's tensors alive for as long as the error is kept.
"""

import traceback
from collections.abc import Callable
from typing import TypeVar, cast

import attrs
import torch
from torch import Tensor

from kernel.requests.logit_rules import LogitsProcessor
from kernel.step import RowFault, RowOutcome, RowSampling, RowScores

__all__ = ["apply_constraint", "apply_processors", "mark_last"]

_T = TypeVar("_T")
_MOST_SAID = 400
"""Characters of an error's own words that become part of ours."""


class _Unusable(Exception):
    """A processor returned something that can't be drawn from."""


def apply_processors(logits: Tensor, row: RowSampling) -> Tensor | RowFault:
    """What a row's processors make of its logits; they get copies of all that they are given.

    Args:
        logits: [vocabulary], not changed.
        row: has rules.
    """
    rules = row.rules
    if rules is None:
        return logits
    generated = list(rules.known.generated(row.index))
    current = logits
    for processor in rules.processors:
        texts = [rules.known.prompt()] if processor.takes_prompt else []
        # A copy for each: what one returns may be its own to keep, and the next may change it.
        arguments = (*texts, list(generated), current.clone())
        result = _guard(_name(processor), lambda: _usable(processor.call(*arguments), logits))  # noqa: B023  called at once
        if isinstance(result, RowFault):
            return result
        current = result
    return current


def apply_constraint(row: RowSampling, into: Tensor) -> RowFault | None:
    """Fill one row of the mask [words] with what its constraint allows."""
    rules = row.rules
    if rules is None or rules.constraint is None:
        return None
    constraint, generated = rules.constraint, list(rules.known.generated(row.index))
    found = _guard("the structured output", lambda: constraint.fill(generated, into))
    return found if isinstance(found, RowFault) else None


def mark_last(row: RowSampling, outcome: RowOutcome) -> RowOutcome:
    """An outcome, marked as the turn's last where its constraint lets nothing follow the token."""
    rules = row.rules
    if rules is None or rules.constraint is None or isinstance(outcome, RowFault):
        return outcome
    drawn = outcome if isinstance(outcome, RowScores) else RowScores(outcome)
    if drawn.token is None:
        return outcome
    constraint, generated = rules.constraint, [*rules.known.generated(row.index), drawn.token]
    is_last = _guard("the structured output", lambda: constraint.is_complete(generated))
    if isinstance(is_last, RowFault):
        return is_last
    return attrs.evolve(drawn, is_last=True) if is_last else outcome


def _guard(what: str, call: Callable[[], _T]) -> _T | RowFault:
    try:
        return call()
    except _Unusable as error:
        return RowFault(f"{what} {error}")
    except BaseException as error:
        return RowFault(f"{what} raised {_described(error)}", _detached(error))


def _described(error: BaseException) -> str:
    """Its type and its words; they aren't ours either, and may fail."""
    try:
        said = f"{type(error).__name__}: {error}"
    except Exception:
        return f"{type(error).__name__}, which can't say why"
    # Some of torch's texts hold a whole registry; the error itself is there to be looked at.
    return said if len(said) <= _MOST_SAID else said[:_MOST_SAID] + " ..."


def _detached(error: BaseException) -> BaseException:
    """The error with its traceback as text, and no frames in its chain."""
    text = "".join(traceback.format_exception(error))
    found, chain = set[int](), [error]
    while chain:
        one = chain.pop()
        if id(one) in found:  # an error may be its own cause
            continue
        found.add(id(one))
        traceback.clear_frames(one.__traceback__)
        one.__traceback__ = None
        chain += [link for link in (one.__cause__, one.__context__) if link is not None]
        if isinstance(one, BaseExceptionGroup):
            chain += cast("BaseExceptionGroup[BaseException]", one).exceptions
    error.add_note(text)
    return error


def _usable(result: object, logits: Tensor) -> Tensor:
    if not isinstance(result, Tensor):
        raise _Unusable(f"returned {type(result).__name__} instead of the logits")
    if result.shape != logits.shape:
        raise _Unusable(
            f"returned logits of shape {tuple(result.shape)} instead of {tuple(logits.shape)}"
        )
    result = result.detach().to(device=logits.device, dtype=logits.dtype)
    if bool((result.isnan() | (result == torch.inf)).any()):
        raise _Unusable("returned logits that are no numbers, or infinitely high")
    return result


def _name(processor: LogitsProcessor) -> str:
    call = processor.call
    return f"logits processor {getattr(call, '__qualname__', type(call).__qualname__)}"
