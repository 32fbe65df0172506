"""How likely the model itself held tokens: log-probabilities and ranks from raw logits."""

from collections.abc import Sequence

import torch
from torch import Tensor

from adapters.torch_device.sampling.arrays import (
    floats,
    indices,
    numbers,
    ranked,
    table,
    whole_table,
)
from kernel.outputs import Logprob, TokenLogprobs

__all__ = ["score"]


def score(logits: Tensor, tokens: Sequence[int], counts: Sequence[int]) -> list[TokenLogprobs]:
    """Log-probabilities of one token per row, and of so many of the likeliest beside it.

    Args:
        logits: [rows, vocabulary], as the model gave them; not changed.
        tokens: the token that stands at each row's position.
        counts: how many of the likeliest each row reports; -1: all.

    The normaliser is summed up in float64. Among equals the lowest id is the likelier.
    """
    vocabulary = logits.shape[1]
    wanted = [vocabulary if count < 0 else min(count, vocabulary) for count in counts]
    top = logits.amax(-1, keepdim=True)
    norm = (logits - top).exp_().sum(-1, keepdim=True, dtype=torch.float64).log_() + top
    at = indices(tokens, logits)[:, None]
    own = logits.gather(1, at)
    own_rank = numbers(_before(logits, own, at) + 1)
    own_logprob = floats((own.double() - norm)[:, 0])
    most = max(wanted)
    if not most:
        return [
            {token: Logprob(logprob, rank)}
            for token, logprob, rank in zip(tokens, own_logprob, own_rank, strict=True)
        ]
    best, best_ids = ranked(logits, most)
    top_logprob, top_ids = table(best.double() - norm), whole_table(best_ids)
    found: list[TokenLogprobs] = []
    for row, (token, count) in enumerate(zip(tokens, wanted, strict=True)):
        pairs = zip(top_ids[row][:count], top_logprob[row], strict=False)
        entry = {id_: Logprob(logprob, rank) for rank, (id_, logprob) in enumerate(pairs, 1)}
        entry.setdefault(token, Logprob(own_logprob[row], own_rank[row]))
        found.append(entry)
    return found


def _before(logits: Tensor, own: Tensor, at: Tensor) -> Tensor:
    """How many ids are likelier than each row's own: [rows]."""
    before = (logits > own).sum(-1)
    equal = (logits == own).sum(-1)
    tied = (equal > 1).nonzero()[:, 0]
    if tied.shape[0]:
        ids = torch.arange(logits.shape[1], device=logits.device)
        before[tied] += ((logits[tied] == own[tied]) & (ids < at[tied])).sum(-1)
    return before
