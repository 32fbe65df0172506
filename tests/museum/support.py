"""What scenarios share: solo runs, an order of delivery, a tiny real model."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

import attrs
import pytest

from adapters.fake_device import FakeDevice
from adapters.fake_device.tokenizer import FakeTokenizer
from kernel.config import EngineConfig
from kernel.engine.core import Core
from kernel.environment import Environment
from kernel.messages import CancelTurn, StartTurn
from kernel.params import SamplingParams
from kernel.probe import NullProbe
from kernel.sessions.session import SessionActor
from kernel.step import (
    DeviceStep,
    OpenedDevice,
    StepReport,
    StepRow,
    TransferReport,
    TransferStep,
)
from kernel.turn import TurnRequest
from ownership import BaseName, CustodianId
from tests.kernel.loopless import Loopless, tokens_of
from tests.kernel.toys import CALLER, Clock
from tests.kernel.turns import make_request
from tests.ownership.support import Desk
from tests.scenarios.inputs import greedy
from tests.scenarios.stage import PAGE_SIZE, Stage

if TYPE_CHECKING:
    import torch

    from kernel import Session
    from tests.oracle.tiny_model import TinyModel

__all__ = [
    "MuteWorker",
    "Order",
    "are_equal",
    "assert_solo",
    "bits_of",
    "cancel_all",
    "finish_all",
    "history_of",
    "is_open",
    "live_rows",
    "name_held_by",
    "on_the_tiny_model",
    "one_shot",
    "open_ordered",
    "open_tiny",
    "serve",
    "solo",
    "submit_all",
    "tiny_model",
    "was_admitted",
    "words",
]


def solo(context: Sequence[int], count: int, *, page_size: int = 4) -> list[int]:
    """Tokens of a cold run over a context, alone on an engine of its own."""
    world = Loopless.open(page_size=page_size, max_num_seqs=1)
    request = world.start(one_shot(world), list(context), greedy(count))
    world.finish(request)
    return tokens_of(request)


def assert_solo(context: Sequence[int], request: TurnRequest, *, page_size: int = 4) -> None:
    """A turn generated what a cold run alone over its whole context generates."""
    tokens = tokens_of(request)
    whole = [*context, *request.tokens]
    assert tokens == solo(whole, len(tokens), page_size=page_size), whole


def one_shot(world: Loopless, name: str = "one-shot") -> SessionActor:
    """The session behind a one-shot request."""
    return world.session(name, is_one_shot=True)


def history_of(session: SessionActor) -> list[int]:
    """The token log of a session."""
    return session.state.log.tolist()


def finish_all(world: Loopless, *requests: TurnRequest) -> None:
    """Complete steps until all of them have ended."""
    for request in requests:
        world.finish(request)


def submit_all(
    world: Loopless, prompts: Sequence[Sequence[int]], params: SamplingParams, name: str
) -> list[tuple[SessionActor, TurnRequest]]:
    """Many one-shots, handled together: a count after each would take longer than the rest."""
    pairs: list[tuple[SessionActor, TurnRequest]] = []
    for number, tokens in enumerate(prompts):
        session = one_shot(world, f"{name}-{number}")
        request = make_request(session.session_id, tokens, params)
        world.core.door.enter(request.id, len(request.tokens))
        session.mailbox.post(StartTurn(request), CALLER)
        pairs.append((session, request))
    world.run()
    return pairs


def cancel_all(world: Loopless, pairs: Sequence[tuple[SessionActor, TurnRequest]]) -> None:
    """Cancel many turns, handled together."""
    for session, request in pairs:
        session.mailbox.post(CancelTurn(request.id, "abort"), CALLER)
    world.run()


def is_open(world: Loopless, session: SessionActor) -> bool:
    """Whether a session can be found."""
    return session.session_id in world.core.sessions


def was_admitted(request: TurnRequest) -> bool:
    """Whether a turn has had its first room."""
    return request.output.admitted_at is not None


def live_rows(world: Loopless) -> list[StepRow]:
    """The rows of the step that waits."""
    (step,) = world.device.waiting
    return list(step.rows)


def serve(world: Loopless, *, rounds: int = 50) -> None:
    """Serve all mail, and fail where there is no end to it."""
    for _ in range(rounds):
        if not world.core.dispatcher.run(1000):
            return
    raise AssertionError(f"the engine spins: more than {rounds * 1000} messages")


def name_held_by(desk: Desk, custodian: CustodianId) -> BaseName:
    """What the newest state of a custodian is asked for by."""
    name = desk.ledger.view.held_by(custodian)[-1].name
    assert name is not None
    return name


@attrs.define
class Order:
    """Which mailbox is served next: the one that is ready longest, or the newest."""

    newest_first: bool = False

    def __call__(self, count: int) -> int:
        return count - 1 if self.newest_first else 0


def open_ordered(order: Callable[[int], int], **config: object) -> Loopless:
    """A loopless engine whose mailboxes are served in an order of the test's own."""
    clock = Clock()
    device = FakeDevice(mode="manual", eos_token_ids=())
    limits = {"page_size": 4, "max_num_seqs": 4, "max_num_batched_tokens": 64, **config}
    environment = Environment(clock=clock, choose=order)
    core = Core(EngineConfig.from_dict(limits), device, environment, NullProbe())
    core.start()
    return Loopless(core, device, clock)


@attrs.define(eq=False)
class MuteWorker:
    """Takes steps and never reports one."""

    has_ended: bool = False
    """Whether its thread is proven to have ended."""

    def submit(self, step: DeviceStep, done: Callable[[StepReport], None], /) -> None:
        """It is lost on the way."""

    def transfer(self, step: TransferStep, done: Callable[[TransferReport], None], /) -> None:
        """It is lost as well."""

    def stop(self) -> None:
        """It does not hear."""

    def join(self, timeout_s: float, /) -> bool:
        return self.has_ended


on_the_tiny_model = pytest.mark.timeout(90)
"""The first test that opens it imports torch, which takes its time on a busy machine."""


@cache
def tiny_model() -> "TinyModel":
    """A real hybrid model on torch in float64, with few and random weights."""
    from tests.oracle.tiny_model import TinyModel

    return TinyModel(11)


def open_tiny() -> OpenedDevice:
    """A fresh device over the tiny model; what is given back to it turns into NaN."""
    device = tiny_model().device("float64")
    return OpenedDevice(device=device, tokenizer=FakeTokenizer(device.model.vocab_size, ()))


def bits_of(stage: Stage, session: "Session") -> "list[torch.Tensor]":
    """All that a session's newest state is on the tiny model's device, copied off it."""
    from adapters.torch_device import TorchDevice

    device = stage.device.inner
    assert isinstance(device, TorchDevice)
    claim = stage.held_by(session)[-1]
    assert isinstance(claim.slot, int)
    state, pages = device.arenas.states, device.arenas.pages
    bits = [state["conv"][:, claim.slot].clone(), state["ssm"][:, claim.slot].clone()]
    for number, page in enumerate(claim.pages):
        filled = min(PAGE_SIZE, claim.position - number * PAGE_SIZE)
        bits.append(pages.keys[:, page, :filled].clone())
        bits.append(pages.values[:, page, :filled].clone())
    return bits


def are_equal(bits: "list[torch.Tensor]", others: "list[torch.Tensor]") -> bool:
    """Whether two states are the same, bit for bit."""
    return len(bits) == len(others) and all(
        bit.equal(other) for bit, other in zip(bits, others, strict=True)
    )


def words(length: int, salt: int = 0) -> list[int]:
    """Token ids of the tiny model; another salt makes another prompt."""
    return [(5 * salt + 3 * number + number * number) % 60 + 1 for number in range(length)]
