"""What the engine generates on the peer's weights, greedily, judged token by token."""

from collections.abc import Iterable, Sequence

import anyio
import attrs

from adapters.torch_device import TorchDevice
from kernel import Engine, EngineConfig, RequestOutput, SamplingParams
from tests.oracle.world import Plan, run_world
from tests.parity.cases import VOCABULARY
from tests.parity.peer import Peer

__all__ = ["TIE", "TokenCount", "judge", "like_generate", "like_oracle"]

TIE = 1e-6
"""Two leading candidates closer than this, relative to the largest logit, are a tie."""


@attrs.frozen
class TokenCount:
    """Tokens that were compared, and how many of them differ."""

    compared: int = 0
    differing: int = 0
    ties: int = 0
    """Of the differing ones: both candidates are as good to within rounding."""

    def __add__(self, other: "TokenCount") -> "TokenCount":
        return TokenCount(
            self.compared + other.compared,
            self.differing + other.differing,
            self.ties + other.ties,
        )


def judge(peer: Peer, context: Sequence[int], tokens: Sequence[int]) -> TokenCount:
    """Compare each token with the largest logit of the peer's uncached pass over what precedes."""
    if not tokens:
        return TokenCount()
    logits = peer.logits([*context, *tokens])[len(context) - 1 : -1]
    differing = ties = 0
    for row, token in zip(logits, tokens, strict=True):
        if int(row.argmax()) != token:
            differing += 1
            ties += float(row.max() - row[token]) < TIE * float(logits.abs().max())
    return TokenCount(len(tokens), differing, ties)


def like_generate(
    device: TorchDevice, peer: Peer, prompts: Iterable[Sequence[int]], length: int
) -> TokenCount:
    """Requests that run at once, against the peer's own ``generate``, prompt by prompt."""
    asked = [list(prompt) for prompt in prompts]
    total = TokenCount()
    for prompt, output in zip(asked, anyio.run(_complete, device, asked, length), strict=True):
        generated = peer.greedy(prompt, length)
        pairs = zip(generated, output.token_ids, strict=True)
        first = next((at for at, (theirs, ours) in enumerate(pairs) if theirs != ours), None)
        if first is None:
            total += TokenCount(length)
            continue
        # After the first difference both go on from other texts.
        tie = judge(peer, [*prompt, *generated[:first]], [output.token_ids[first]]).ties
        total += TokenCount(first + 1, 1, tie)
    return total


async def _complete(
    device: TorchDevice, prompts: list[list[int]], length: int
) -> list[RequestOutput]:
    params = SamplingParams(temperature=0, max_tokens=length, ignore_eos=True)
    uses = device.model
    config = EngineConfig(
        num_slots=4 if uses.uses_slots else None,
        num_pages=90 if uses.uses_pages else None,
        page_size=4,
        max_num_seqs=4,
        max_num_batched_tokens=16,
    )
    results: dict[int, RequestOutput] = {}

    async def complete(number: int, engine: Engine) -> None:
        results[number] = await engine.complete(prompts[number], params)

    async with Engine.open(config, device=device) as engine, anyio.create_task_group() as tasks:
        for number in range(len(prompts)):
            tasks.start_soon(complete, number, engine)
    return [results[number] for number in range(len(prompts))]


def like_oracle(device: TorchDevice, peer: Peer, seed: int) -> TokenCount:
    """A random world of sessions and one-shots: turns, forks, interrupts, cancels, preemption.

    Every turn that ended is judged over its session's whole history.
    """
    uses = device.model
    plan = Plan.draw(seed, vocab=VOCABULARY, uses_slots=uses.uses_slots, uses_pages=uses.uses_pages)
    world = anyio.run(run_world, plan, device)
    total = TokenCount()
    for turn in world.finished:
        total += judge(peer, turn.context, turn.tokens)
    return total
