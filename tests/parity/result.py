"""One case measured: our errors by path and number type, the peer's own, tokens."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import attrs
import torch

from adapters.torch_device import TorchDevice
from tests.parity.cases import VOCABULARY, Case
from tests.parity.ours import open_device
from tests.parity.paths import Text, measure
from tests.parity.peer import Peer, build_peer
from tests.parity.tokens import TokenCount, like_generate, like_oracle

__all__ = [
    "LARGEST",
    "MEDIAN",
    "TOLERANCES",
    "CaseResult",
    "HalfResult",
    "PeerResult",
    "ask_peer",
    "compare",
]

TOLERANCES: Mapping[str, float] = {"float64": 1e-9, "float32": 1e-4}
"""Largest difference of a logit, relative to the largest logit of the text."""
LARGEST: Mapping[str, float] = {"bfloat16": 0.2, "float16": 0.02}
"""The same for the half types, without experts: where two experts score alike, rounding may choose
the other one, and then the difference is as large as what they say."""
MEDIAN: Mapping[str, float] = {"bfloat16": 0.05, "float16": 0.005}
"""The same for the median over all tokens, with experts or without."""
CACHED = 1e-12
"""The peer's cached and uncached paths agree when they differ by less, in float64."""
_OTHER_LENGTHS = (31, 13)
_GENERATED = 16
_HALF_PATHS = ("prompt", "decode", "mixed", "turns")


@attrs.frozen
class PeerResult:
    """How far the peer differs from its own uncached float64."""

    stepped: float
    """Its cache, token by token."""
    appended: float
    """Its cache, many tokens at once."""
    leaks: tuple[str, ...] = ()
    """Calls that ran in float32 although all of it was to run in float64."""


@attrs.frozen
class HalfResult:
    """A half type against float64 on the same rounded weights."""

    largest: float
    median: float
    peer: float
    """The largest error of the peer itself, without a cache."""
    has_experts: bool


@attrs.frozen
class CaseResult:
    """What was measured of one case."""

    case: Case
    peer: PeerResult
    errors: Mapping[str, Mapping[str, float]]
    """The largest by number type and path."""
    half: Mapping[str, HalfResult]
    generated: TokenCount
    """Against ``generate``; nothing where the peer's cache is wrong."""
    worlds: TokenCount
    """Against the uncached pass."""

    @property
    def faults(self) -> list[str]:
        """What breaks a tolerance; empty when all is well."""
        found = [
            f"{path} in {dtype} is off by {error:.1e}"
            for dtype, paths in self.errors.items()
            for path, error in paths.items()
            if not error <= TOLERANCES[dtype]
        ]
        for dtype, half in self.half.items():
            if not half.median <= MEDIAN[dtype]:
                found.append(f"{dtype} is off by {half.median:.1e} in the median")
            if not (half.has_experts or half.largest <= LARGEST[dtype]):
                found.append(f"{dtype} is off by {half.largest:.1e}")
        for what, count in (("generate", self.generated), ("worlds", self.worlds)):
            if count.differing > count.ties:
                found.append(f"{count.differing} tokens of {what} differ")
        if self.peer.leaks:
            found.append(f"the peer's float64 leaks in {', '.join(self.peer.leaks)}")
        return [f"{self.case.key}: {fault}" for fault in found]


def texts_of(peer: Peer) -> list[Text]:
    """Random texts of a case, with the oracle's logits."""
    texts: list[Text] = []
    for length in (peer.case.prompt, *_OTHER_LENGTHS):
        draw = random.Random(f"{peer.case.key} {length}")
        tokens = tuple(draw.randrange(VOCABULARY) for _ in range(length))
        texts.append(Text(tokens, peer.logits(tokens)))
    return texts


def ask_peer(peer: Peer, text: Text) -> PeerResult:
    """Whether the peer's caches agree with its uncached pass."""
    half = len(text.tokens) // 2
    largest = text.logits.abs().max()

    def off(found: torch.Tensor) -> float:
        return float((found - text.logits).abs().max() / largest)

    stepped = off(peer.stepped(text.tokens, half))
    appended = off(peer.appended(text.tokens, half))
    return PeerResult(stepped, appended, tuple(sorted(peer.leaks)))


def compare(case: Case, folder: Path, *, worlds: int = 2) -> CaseResult:
    """Measure all of one case; the peer's directories are written into ``folder``."""
    exact, single = build_peer(case, torch.float64), build_peer(case, torch.float32)
    texts = texts_of(exact)
    errors = {
        "float64": _largest(measure(_device(exact, folder, "float64"), texts)),
        "float32": _largest(measure(_device(single, folder, "float32"), texts_of(single))),
    }
    answer = ask_peer(exact, texts[0])
    device = _device(exact, folder, "float64")
    generated = judged = TokenCount()
    if answer.stepped < CACHED:
        prompts = [text.tokens for text in texts]
        generated = like_generate(device, exact, prompts, _GENERATED)
    for seed in range(worlds):
        judged += like_oracle(_device(exact, folder, "float64"), exact, seed)
    halves = {"bfloat16": torch.bfloat16, "float16": torch.float16}
    half = {name: _compare_half(case, folder, name, dtype) for name, dtype in halves.items()}
    return CaseResult(case, answer, errors, half, generated, judged)


def _compare_half(case: Case, folder: Path, name: str, dtype: torch.dtype) -> HalfResult:
    oracle, peer = build_peer(case, torch.float64, stored=dtype), build_peer(case, dtype)
    texts = texts_of(oracle)
    found = measure(_device(peer, folder, name), texts, _HALF_PATHS)
    own = [
        text.error(position, row)
        for text in texts
        for position, row in enumerate(peer.logits(text.tokens), 1)
    ]
    errors = [error for path in found.values() for error in path]
    return HalfResult(max(errors), median(errors), max(own), peer.has_experts)


def _largest(found: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {path: max(errors) for path, errors in found.items()}


def _device(peer: Peer, folder: Path, dtype: str) -> TorchDevice:
    directory = folder / peer.case.key.replace(":", "-") / dtype
    if not directory.exists():
        peer.save(directory)
    return open_device(directory, dtype)
