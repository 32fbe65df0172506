"""Rules that transformers has no processor for, what is remembered between draws, and order."""

import gc
import random
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor

from adapters.torch_device.sampling import SamplingMemory, draw
from adapters.torch_device.sampling.arrays import floats, numbers
from adapters.torch_device.sampling.memory import SeenTokens
from kernel.requests.logit_rules import LogitRules, LogitsProcessor
from kernel.step import RowSampling
from tests.sampling.distribution import changed_logits
from tests.sampling.rows import Parity, how, known_of, random_logits, ruled

VOCABULARY = 300


def processor(call: Any) -> tuple[LogitsProcessor, ...]:
    made = LogitsProcessor.of(call)
    assert made is not None
    return (made,)


def penalised(logits: Tensor, prompt: list[int], generated: list[int], rules: LogitRules) -> Tensor:
    """The formula of vLLM, one token after another."""
    found, counts = logits.clone(), Counter(generated)
    for token in {*prompt, *generated}:
        value = float(found[token])
        penalty = rules.repetition_penalty
        found[token] = value / penalty if value > 0 else value * penalty
    for token, count in counts.items():
        found[token] -= rules.frequency_penalty * count + rules.presence_penalty
    return found


@pytest.mark.parametrize("seed", range(5))
def test_penalties_are_vllms_formula(seed: int) -> None:
    """Repetition looks at prompt and output, frequency and presence at the output alone."""
    draws = random.Random(seed)
    logits = random_logits(8, VOCABULARY, seed)
    rows: list[RowSampling] = []
    expected: list[Tensor] = []
    for raw in logits:
        prompt = [draws.randrange(VOCABULARY) for _ in range(draws.choice([0, 3, 80]))]
        generated = [draws.randrange(30) for _ in range(draws.choice([0, 1, 50]))]
        row = ruled(
            prompt,
            generated,
            repetition_penalty=draws.choice([1.0, 0.7, 1.2]),
            frequency_penalty=draws.choice([0.0, -0.3, 0.9]),
            presence_penalty=draws.choice([0.0, -1.0, 0.4]),
        )
        rows.append(row)
        assert row.rules is not None
        expected.append(penalised(raw, prompt, generated, row.rules))

    ours = changed_logits(logits, rows)

    assert torch.allclose(ours, torch.stack(expected), rtol=0, atol=1e-12)


def test_what_is_remembered_of_a_turn_is_what_would_be_counted_anew() -> None:
    """Token by token, past the room that the arrays begin with, and after a step back."""
    draws = random.Random(1)
    prompt = [draws.randrange(500) for _ in range(100)]
    generated = [draws.randrange(500) for _ in range(300)]
    rules = LogitRules(known=known_of(prompt, generated), repetition_penalty=1.1)
    remembered = SeenTokens()

    for count in [*range(0, 300, 7), 3, 250]:
        ids, counts = remembered.after(rules, count)
        fresh_ids, fresh_counts = SeenTokens().after(rules, count)
        assert dict(zip(ids.tolist(), counts.tolist(), strict=True)) == {
            token: Counter(generated[:count])[token] for token in {*prompt, *generated[:count]}
        }
        assert (ids.tolist(), counts.tolist()) == (fresh_ids.tolist(), fresh_counts.tolist())


def test_a_turn_that_has_ended_is_forgotten() -> None:
    """Else every turn would leave its tokens with the device for ever."""
    memory = SamplingMemory()
    rows = [ruled([1, 2], [3], repetition_penalty=1.1, bad_words=((4,),)) for _ in range(3)]
    draw(random_logits(3, 20, 1), rows, memory)
    assert len(memory) == 3

    del rows[1:]
    gc.collect()

    assert len(memory) == 1


def test_a_bad_word_is_banned_only_where_its_beginning_was_just_generated() -> None:
    """The prompt does not begin one, as in vLLM."""
    words = ((5, 6), (7,), (3, 5, 8))
    rows = [
        ruled([1], [3, 5], bad_words=words),
        ruled([3, 5], [], bad_words=words),
        ruled([1], [5, 3], bad_words=words),
        ruled([1], [5], bad_words=words),
    ]

    ours = changed_logits(random_logits(4, 10, 2), rows)

    banned = [numbers(row.isinf().nonzero()[:, 0]) for row in ours]
    assert banned == [[6, 7, 8], [7], [7], [6, 7]]


def test_a_constraint_sees_the_generated_tokens_and_its_mask_is_what_is_left() -> None:
    """Vocabularies of whole and of broken words of 32 bits."""
    for vocabulary in (31, 32, 33, 64, 100):
        rows = [ruled([1], [2] * count, constraint=Parity()) for count in range(3)]

        ours = changed_logits(random_logits(3, vocabulary, 3), rows)

        for count, row in enumerate(ours):
            allowed = numbers((~row.isinf()).nonzero()[:, 0])
            assert allowed == list(range(count % 2, vocabulary, 2))


def test_a_processor_is_given_copies_of_its_own_turns_tokens_and_logits() -> None:
    """Whatever it does with them reaches nothing but its result."""
    seen: list[tuple[list[int], list[int]]] = []

    def spoil(prompt: list[int], generated: list[int], logits: Tensor) -> Tensor:
        seen.append((list(prompt), list(generated)))
        prompt.clear()
        generated.append(99)
        logits[:] = 0
        logits[4] = 50
        return logits

    row = ruled([1, 2, 3], [4, 5], processors=processor(spoil) * 2)
    logits = random_logits(2, 10, 4)
    other = logits[1].clone()

    assert draw(logits, [row, how()])[0] == 4
    assert torch.equal(logits[1], other)
    assert seen == [([1, 2, 3], [4, 5])] * 2


def test_processors_run_after_the_bias_and_before_penalties_and_bans() -> None:
    """What is banned stays banned, whatever a processor returns."""
    seen: list[float] = []

    def look(generated: list[int], logits: Tensor) -> Tensor:
        del generated
        seen.append(float(logits[2]))
        return torch.full_like(logits, 3.0)

    row = ruled(
        [1],
        [2],
        processors=processor(look),
        logit_bias=((2, 1.5),),
        presence_penalty=1.0,
        bad_words=((7,),),
        allowed_token_ids=(2, 3, 7),
    )
    logits = random_logits(1, 10, 5)
    raw = float(logits[0, 2])

    ours = floats(changed_logits(logits, [row])[0])

    assert seen == [pytest.approx(raw + 1.5)]
    assert ours[2:4] == [2.0, 3.0]
    assert [id_ for id_, value in enumerate(ours) if value > float("-inf")] == [2, 3]


def test_rules_and_their_tokens_change_greedy_draws_too() -> None:
    """Only the limits of the distribution say nothing to a greedy row."""
    logits = torch.zeros(4, 6)
    logits[:, 2], logits[:, 4] = 3.0, 2.5
    rows = [
        ruled([], [], temperature=0, min_p=1.0, typical_p=0.1),
        ruled([], [2], temperature=0, presence_penalty=1.0),
        ruled([2], [], temperature=0, presence_penalty=1.0),
        ruled([2], [], temperature=0, repetition_penalty=2.0),
    ]

    assert draw(logits, rows) == [2, 4, 2, 4]
