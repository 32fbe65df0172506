"""The peer: a model of transformers with random weights, and what it says of a text.

The oracle is its uncached forward pass over the whole text. Its cached paths (a prompt at once,
then token by token, or the rest at once) are a second one where they agree with the first.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, cast

import attrs
import torch
import transformers
from torch import Tensor

from tests.parity.cases import Case
from tests.parity.double import double_precision
from tests.parity.weights import randomise

__all__ = ["Peer", "build_peer"]

# Its own annotations are partial: what comes from it is taken as it is.
_transformers: Any = transformers
_transformers.logging.set_verbosity_error()
_transformers.logging.disable_progress_bar()


@attrs.frozen(eq=False)
class Peer:
    """One model of transformers, to be asked in one number type."""

    case: Case
    model: Any
    compute: torch.dtype
    leaks: set[str] = attrs.field(factory=set[str])
    """Calls that gave a float32 although everything ran in float64; has to stay empty."""

    @property
    def has_experts(self) -> bool:
        """Whether some layer sends each token to a few of its experts."""
        return any(".experts." in name for name in self.model.state_dict())

    def logits(self, tokens: Sequence[int]) -> Tensor:
        """The oracle: logits after each token, [tokens, vocabulary], without a cache."""
        with self._running():
            return self._ask(tokens, 0, None)

    def stepped(self, tokens: Sequence[int], prompt: int) -> Tensor:
        """Logits after each token with a cache: the first ``prompt`` at once, then one by one."""
        return self._cached(tokens, [prompt] + [1] * (len(tokens) - prompt))

    def appended(self, tokens: Sequence[int], prompt: int) -> Tensor:
        """Logits after each token with a cache: the first ``prompt``, then all others at once."""
        return self._cached(tokens, [prompt, len(tokens) - prompt])

    def greedy(self, prompt: Sequence[int], count: int) -> tuple[int, ...]:
        """``count`` tokens of its own ``generate``; no end-of-sequence token ends it."""
        with self._running():
            generated: Tensor = self.model.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                max_new_tokens=count,
                do_sample=False,
                pad_token_id=0,
            )
        return tuple(int(token) for token in generated[0, len(prompt) :])

    def save(self, directory: Path) -> None:
        """Write the directory that transformers writes."""
        self.model.save_pretrained(directory)

    def _cached(self, tokens: Sequence[int], counts: Sequence[int]) -> Tensor:
        done, found = 0, list[Tensor]()
        with self._running():
            cache = _transformers.DynamicCache(config=self.model.config)
            for count in counts:
                found.append(self._ask(tokens[done : done + count], done, cache))
                done += count
        return torch.cat(found)

    def _ask(self, tokens: Sequence[int], position: int, cache: Any) -> Tensor:
        asked: dict[str, Any] = {"use_cache": cache is not None}
        if cache is not None:
            asked["cache"] = cache
        if self.case.family == "bamba":
            # Without them its rotary embedding starts again at 0 with each call.
            asked["position_ids"] = torch.arange(position, position + len(tokens))[None]
        logits: Tensor = self.model(torch.tensor([tokens]), **asked).logits[0]
        return logits.double()

    @contextmanager
    def _running(self) -> Generator[None]:
        with torch.no_grad(), _precision(self.compute) as leaks:
            yield
        self.leaks.update(leaks)


def build_peer(
    case: Case, compute: torch.dtype, *, stored: torch.dtype | None = None, seed: int = 0
) -> Peer:
    """Make the case's model, with the same random weights whatever type it computes in.

    Args:
        case: which one.
        compute: float64 (its casts to float32 replaced), float32, or a half type as it stands.
        stored: the type that the weights were rounded to before; ``compute`` when ``None``.
        seed: of the weights.
    """
    with _precision(compute):  # rotary tables are made with the model
        config = _transformers.AutoConfig.for_model(case.family, **case.settings)
        model = _transformers.AutoModelForCausalLM.from_config(
            config, dtype=compute, attn_implementation="eager", experts_implementation="eager"
        )
    tensors = cast("dict[str, Tensor]", model.state_dict())
    randomise(tensors, seed, case.gain)
    if stored is not None:
        for tensor in tensors.values():
            tensor.copy_(tensor.to(stored))
    model.generation_config.eos_token_id = None  # random weights would end anywhere
    return Peer(case=case, model=model.eval(), compute=compute)


def _precision(compute: torch.dtype) -> Any:
    return double_precision() if compute is torch.float64 else nullcontext(set[str]())
