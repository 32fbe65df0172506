"""What the fake device makes of a turn's rules. It has no logits, so it keeps to what can be seen.

What is not allowed is never drawn, and processors and constraints are called as on a real device,
with the same guard around them. Whatever else is asked (bias, penalties, a processor's result)
changes the draw by being hashed into it. Log-probabilities are invented, the same for the same
state and token.
"""

from collections.abc import Sequence

from kernel.outputs import Logprob, TokenLogprobs
from kernel.requests.logit_rules import LogitRules
from kernel.step import PromptScoring, RowFault, RowOutcome, RowSampling, RowScores, StepRow

__all__ = ["draw_ruled", "score_prompt"]

_BITS = 32


def draw_ruled(state: int, row: RowSampling, rules: LogitRules, vocabulary: int) -> RowOutcome:
    """Draw a token for a row that has rules; ``state`` stands for the whole distribution."""
    given = state
    generated = list(rules.known.generated(row.index))
    try:
        state = _changed(state, rules, generated, vocabulary)
        allowed = _allowed(row, rules, generated, vocabulary)
    except BaseException as error:
        return _raised(error)
    if not allowed:
        return RowFault("no token is left to draw")
    rank = hash((row.key, row.index)) % vocabulary if row.temperature else 0
    token = allowed[hash((state, rank)) % len(allowed)]
    drawn = None if rules.logprobs is None else _scores(given, token, rules.logprobs, vocabulary)
    try:
        is_last = rules.constraint is not None and rules.constraint.is_complete([*generated, token])
    except BaseException as error:
        return _raised(error)
    return RowScores(token, drawn, is_last=is_last) if drawn or is_last else token


def _raised(error: BaseException) -> RowFault:
    return RowFault(f"code that isn't ours raised {type(error).__name__}: {error}", error)


def score_prompt(row: StepRow, scoring: PromptScoring, vocabulary: int) -> RowScores:
    """Log-probabilities of known tokens: functions of token and position."""
    first = row.position + scoring.start
    return RowScores(
        None,
        prompt=tuple(
            _scores(hash((position, token)), token, scoring.count, vocabulary)
            for position, token in enumerate(scoring.targets, first)
        ),
    )


def _changed(state: int, rules: LogitRules, generated: list[int], vocabulary: int) -> int:
    for processor in rules.processors:
        texts = [rules.known.prompt()] if processor.takes_prompt else []
        flat = [0.0] * vocabulary
        result = processor.call(*texts, list(generated), list(flat))
        if list(result) != flat:
            state = hash((state, tuple(result)))
    penalties = (rules.repetition_penalty, rules.frequency_penalty, rules.presence_penalty)
    if penalties != (1, 0, 0):
        state = hash((state, penalties, tuple(generated)))
    if rules.logit_bias:
        state = hash((state, rules.logit_bias))
    return state


def _allowed(
    row: RowSampling, rules: LogitRules, generated: list[int], vocabulary: int
) -> Sequence[int]:
    banned = {*row.banned}
    for word in rules.bad_words:
        start = len(generated) - len(word) + 1
        if start >= 0 and tuple(generated[start:]) == word[:-1]:
            banned.add(word[-1])
    ids = range(vocabulary) if rules.allowed_token_ids is None else rules.allowed_token_ids
    words = [-1] * -(-vocabulary // _BITS)
    if rules.constraint is not None:
        rules.constraint.fill(generated, words)
    return [id_ for id_ in ids if id_ not in banned and words[id_ // _BITS] >> id_ % _BITS & 1]


def _scores(state: int, token: int, count: int, vocabulary: int) -> TokenLogprobs:
    wanted = vocabulary if count < 0 else min(count, vocabulary)
    first = hash((state, 0)) % vocabulary  # what a greedy row without rules draws
    found = {
        (first + rank) % vocabulary: Logprob(-0.5 * (rank + 1), rank + 1) for rank in range(wanted)
    }
    rank = (token - first) % vocabulary
    found.setdefault(token, Logprob(-0.5 * (rank + 1), rank + 1))
    return found
