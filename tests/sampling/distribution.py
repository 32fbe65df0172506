"""The distribution that a row is drawn from, as the sampler itself works it out."""

import torch
from torch import Tensor

from adapters.torch_device.sampling import SamplingMemory
from adapters.torch_device.sampling.limited import limited_weights
from adapters.torch_device.sampling.rules import apply_rules
from adapters.torch_device.sampling.typical import typical_weights
from adapters.torch_device.sampling.weights import weigh
from kernel.step import RowSampling

__all__ = ["changed_logits", "distributions"]


def changed_logits(logits: Tensor, rows: list[RowSampling]) -> Tensor:
    """Logits after the rows' rules: [rows, vocabulary]."""
    changed = logits.clone()
    faults = apply_rules(changed, rows, SamplingMemory())
    assert not faults, faults
    return changed


def distributions(logits: Tensor, rows: list[RowSampling]) -> Tensor:
    """Probabilities [rows, vocabulary] of a batch; no row is greedy."""
    changed = changed_logits(logits, rows)
    vocabulary = logits.shape[1]
    found = torch.zeros_like(changed)
    typical = [at for at, row in enumerate(rows) if row.rules and row.rules.typical_p < 1]
    whole = [at for at, row in enumerate(rows) if is_whole(row, vocabulary)]
    limited = [at for at in range(len(rows)) if at not in {*typical, *whole}]
    if typical:
        found[typical] = typical_weights(changed[typical], [rows[at] for at in typical])
    if whole:
        top = changed[whole].amax(-1, keepdim=True)
        found[whole] = weigh(changed[whole], top, [rows[at] for at in whole])
    if limited:
        weights, ids, _ = limited_weights(
            changed[limited], [rows[at] for at in limited], vocabulary
        )
        found[limited] = torch.zeros_like(weights).scatter_(1, ids, weights)
    return found / found.sum(-1, keepdim=True)


def is_whole(row: RowSampling, vocabulary: int) -> bool:
    limits = row.rules is not None and (row.rules.min_p > 0 or row.rules.typical_p < 1)
    return row.top_p >= 1 and not 0 < row.top_k < vocabulary and not limits
