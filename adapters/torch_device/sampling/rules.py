"""Change logits as each row's rules ask, all rows in one pass; nothing here looks at a neighbour.

The order is vLLM's but for the bans, which come last, so that no processor can undo one: bias,
processors, penalties (repetition, frequency, presence), then bad words, banned ids, allowed ids
and the constraint. A bias and a penalty leave minus infinity where it is, so they could as well
come after the bans.
"""

import math
from collections.abc import Sequence

import attrs
import numpy as np
import torch
from torch import Tensor

from adapters.torch_device.sampling.arrays import floats, indices
from adapters.torch_device.sampling.foreign import apply_constraint, apply_processors
from adapters.torch_device.sampling.masks import WORD, cleared
from adapters.torch_device.sampling.memory import SamplingMemory, TurnMemory
from kernel.requests.logit_rules import LogitRules
from kernel.step import RowFault, RowSampling

__all__ = ["apply_rules", "ban"]

_MINUS = float("-inf")


@attrs.frozen(eq=False)
class _Ruled:
    """A row whose logits are to be changed."""

    at: int
    row: RowSampling
    rules: LogitRules
    memory: TurnMemory


def ban(logits: Tensor, rows: Sequence[RowSampling]) -> None:
    """Put the ids that rows may not draw for now at minus infinity."""
    _put_low(logits, [(at, id_) for at, row in enumerate(rows) if row.banned for id_ in row.banned])


def apply_rules(
    logits: Tensor, rows: Sequence[RowSampling], memory: SamplingMemory
) -> dict[int, RowFault]:
    """Change ``logits`` [rows, vocabulary] in place; returns the rows that can draw nothing."""
    ruled = [
        _Ruled(at, row, row.rules, memory.of(row.rules, logits.device))
        for at, row in enumerate(rows)
        if row.rules is not None and row.rules.changes_logits
    ]
    faults: dict[int, RowFault] = {}
    if ruled:
        _add_bias(logits, ruled)
        _process(logits, ruled, faults)
        _penalise(logits, ruled)
        _ban_words(logits, ruled)
    ban(logits, rows)
    if ruled:
        _allow(logits, ruled)
        _constrain(logits, ruled, faults)
        _check_left(logits, ruled, faults)
    return faults


def _add_bias(logits: Tensor, ruled: Sequence[_Ruled]) -> None:
    biased = [one for one in ruled if one.rules.logit_bias]
    if biased:
        at = _repeat(biased, [len(one.memory.biased) for one in biased], logits)
        ids = torch.cat([one.memory.biased for one in biased])
        bias = torch.cat([one.memory.bias for one in biased])
        logits[at, ids] = _finite(logits[at, ids].double() + bias, logits.dtype)


def _process(logits: Tensor, ruled: Sequence[_Ruled], faults: dict[int, RowFault]) -> None:
    for one in ruled:
        if one.rules.processors:
            result = apply_processors(logits[one.at], one.row)
            if isinstance(result, RowFault):
                faults[one.at] = result
            else:
                logits[one.at] = result


def _penalise(logits: Tensor, ruled: Sequence[_Ruled]) -> None:
    """As Keskar et al. 2019 (repetition), and OpenAI (frequency, presence)."""
    penalised = [
        one
        for one in ruled
        if one.rules.repetition_penalty != 1
        or one.rules.frequency_penalty
        or one.rules.presence_penalty
    ]
    if not penalised:
        return
    seen = [one.memory.seen.after(one.rules, one.row.index) for one in penalised]
    lengths = [len(ids) for ids, _ in seen]
    at = _repeat(penalised, lengths, logits)
    ids = torch.as_tensor(np.concatenate([ids for ids, _ in seen])).to(logits.device)
    counts = torch.as_tensor(np.concatenate([counts for _, counts in seen])).to(logits.device)
    repetition, frequency, presence = (
        torch.tensor(values, dtype=torch.float64, device=logits.device).repeat_interleave(
            indices(lengths, logits)
        )
        for values in zip(
            *(
                (
                    one.rules.repetition_penalty,
                    one.rules.frequency_penalty,
                    one.rules.presence_penalty,
                )
                for one in penalised
            ),
            strict=True,
        )
    )
    found = logits[at, ids].double()
    found = torch.where(found > 0, found / repetition, found * repetition)
    found -= frequency * counts + presence * (counts > 0)
    logits[at, ids] = _finite(found, logits.dtype)


def _ban_words(logits: Tensor, ruled: Sequence[_Ruled]) -> None:
    _put_low(
        logits,
        [
            (one.at, token)
            for one in ruled
            if one.memory.bad_words is not None
            for token in one.memory.bad_words.banned(one.rules, one.row.index)
        ],
    )


def _allow(logits: Tensor, ruled: Sequence[_Ruled]) -> None:
    limited = [(one, one.memory.allowed) for one in ruled if one.memory.allowed is not None]
    if limited:
        rows = [one for one, _ in limited]
        at = _repeat(rows, [len(allowed) for _, allowed in limited], logits)
        ids = torch.cat([allowed for _, allowed in limited])
        kept = logits[at, ids]
        logits[indices([one.at for one in rows], logits)] = _MINUS
        logits[at, ids] = kept


def _constrain(logits: Tensor, ruled: Sequence[_Ruled], faults: dict[int, RowFault]) -> None:
    bound = [one for one in ruled if one.rules.constraint is not None]
    if not bound:
        return
    vocabulary = logits.shape[1]
    words = torch.full((len(bound), -(-vocabulary // WORD)), -1, dtype=torch.int32)
    for one, mask in zip(bound, words, strict=True):
        fault = apply_constraint(one.row, mask)
        if fault is not None:
            faults.setdefault(one.at, fault)
    banned = cleared(words, vocabulary, logits.device)
    if len(bound) == logits.shape[0]:
        logits.masked_fill_(banned, _MINUS)
    else:
        at = indices([one.at for one in bound], logits)
        logits[at] = logits[at].masked_fill_(banned, _MINUS)


def _check_left(logits: Tensor, ruled: Sequence[_Ruled], faults: dict[int, RowFault]) -> None:
    at = indices([one.at for one in ruled], logits)
    for one, highest in zip(ruled, floats(logits[at].amax(-1)), strict=True):
        if highest == _MINUS:
            faults.setdefault(one.at, RowFault("no token is left to draw"))
        elif not math.isfinite(highest):
            # Whatever came of them could be a token that isn't allowed.
            faults.setdefault(one.at, RowFault("the model's logits are no numbers"))


def _finite(values: Tensor, dtype: torch.dtype) -> Tensor:
    """In the logits' type, none of them infinitely high: that could not be drawn from."""
    return values.clamp_(max=torch.finfo(dtype).max).to(dtype)


def _repeat(ruled: Sequence[_Ruled], lengths: Sequence[int], like: Tensor) -> Tensor:
    """The row of each of so many ids."""
    rows = np.repeat([one.at for one in ruled], lengths)
    return torch.as_tensor(rows).to(like.device)


def _put_low(logits: Tensor, pairs: Sequence[tuple[int, int]]) -> None:
    if pairs:
        at, token = torch.tensor(pairs, device=logits.device).unbind(1)
        logits[at, token] = _MINUS
