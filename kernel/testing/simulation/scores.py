"""What must hold of the log-probabilities that a caller gets: one for each token, about it."""

from collections.abc import Sequence

from kernel.outputs import Delta, RequestOutput, TokenLogprobs

__all__ = ["wrong_delta", "wrong_result"]


def wrong_delta(delta: Delta) -> str:
    """What is wrong with the scores of a delta; empty: nothing."""
    return "" if delta.logprobs is None else _wrong(delta.token_ids, delta.logprobs)


def wrong_result(result: RequestOutput) -> str:
    """What is wrong with the scores of a result; empty: nothing."""
    drawn, wrong = result.outputs[0].logprobs, ""
    if drawn is not None:
        wrong = _wrong(result.token_ids, drawn)
    prompt = result.prompt_logprobs
    if prompt is None or wrong:
        return wrong
    # Nothing comes before the first token of a log; an interrupt may come before the others.
    is_whole = result.finish_reason in ("stop", "length")
    history = result.usage.prompt_tokens - len(result.prompt_token_ids)
    missing = [place for place, found in enumerate(prompt) if found is None]
    if is_whole and missing != ([] if history or not prompt else [0]):
        return f"the prompt's tokens at {missing} have no log-probabilities"
    return _wrong(result.prompt_token_ids, prompt)


def _wrong(tokens: Sequence[int], scores: Sequence[TokenLogprobs | None]) -> str:
    if len(tokens) != len(scores):
        return f"{len(tokens)} tokens came with {len(scores)} log-probabilities"
    for token, found in zip(tokens, scores, strict=True):
        if found is not None and token not in found:
            return f"token {token} came with log-probabilities of {list(found)}"
    return ""
