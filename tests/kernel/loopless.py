"""A whole engine without an event loop: the test serves the mail and completes the steps."""

from collections.abc import Sequence
from typing import Any

import anyio
import attrs

from adapters.fake_device import FakeDevice
from kernel.actors.actor import Address, AnyActor
from kernel.actors.reply import Reply
from kernel.config import EngineConfig
from kernel.engine.core import Core
from kernel.environment import Environment
from kernel.errors import TenureError
from kernel.ids import SessionId, session_custodian
from kernel.messages import CancelTurn, CloseSession, InterruptTurn, StartTurn
from kernel.params import SamplingParams
from kernel.probe import NullProbe, Probe
from kernel.requests.detokenizer import IncrementalDetokenizer
from kernel.sessions.session import SessionActor
from kernel.turn import TurnRequest
from tests.kernel.toys import CALLER, Clock
from tests.kernel.turns import make_output, make_request

__all__ = ["Loopless", "error_of", "outcome", "read", "tokens_of"]


@attrs.define(eq=False)
class Loopless:
    """An engine over a fake device whose steps wait for the test, on a clock that stands still."""

    core: Core
    device: FakeDevice
    clock: Clock
    _ids: int = 0

    @classmethod
    def open(
        cls, *, probe: Probe | None = None, device: FakeDevice | None = None, **config: Any
    ) -> "Loopless":
        clock = Clock()
        device = device or FakeDevice(mode="manual", eos_token_ids=())
        limits = {"page_size": 4, "max_num_seqs": 4, "max_num_batched_tokens": 64}
        given: dict[str, Any] = {**limits, **config}
        core = Core(
            EngineConfig(**given),
            device,
            Environment(clock=clock),
            probe or NullProbe(),
        )
        core.start()
        return cls(core, device, clock)

    # Callers' side

    def session(self, name: str = "a", **options: Any) -> SessionActor:
        options = {"is_one_shot": False, "idle_timeout_s": None, **options}
        return self.core.open_session(SessionId(name), **options)

    def start(
        self,
        session: SessionActor,
        tokens: Sequence[int],
        params: SamplingParams | None = None,
        **fields: Any,
    ) -> TurnRequest:
        """Submit a turn as the desk does, and let it be handled."""
        self._ids += 1
        stop = () if params is None else params.stop
        output = make_output(
            detokenizer=IncrementalDetokenizer(self.device.tokenizer, stop=stop) if stop else None,
            decode_early=bool(stop),
            clock=self.clock,
            watch_reader="stall_timeout_s" in fields,
        )
        name = f"turn-{self._ids}"
        request = make_request(name, tokens, params, output=output, **fields)
        self.core.door.enter(request.id, len(request.tokens))
        self.post(session, StartTurn(request))
        return request

    def cancel(self, session: SessionActor, request: TurnRequest) -> None:
        self.post(session, CancelTurn(request.id, "abort"))

    def interrupt(
        self, session: SessionActor, keep: int | None, turn: TurnRequest | None = None
    ) -> Reply[int]:
        reply: Reply[int] = Reply()
        self.post(session, InterruptTurn(None if turn is None else turn.id, keep, reply))
        return reply

    def close(self, session: SessionActor) -> None:
        self.post(session, CloseSession())

    # Moves

    def post(self, target: AnyActor, message: Any) -> None:
        self.core.dispatcher.post(Address[Any](target.name), message, CALLER)
        self.run()

    def run(self) -> None:
        """Serve all mail and every timer that is due; no step completes."""
        while self.core.dispatcher.run(1000):
            pass
        self.check()

    def step(self, count: int = 1) -> None:
        """Complete so many steps, one after another."""
        for _ in range(count):
            self.device.complete()
            self.run()

    def copy(self, count: int = 1) -> None:
        """Complete so many transfers, one after another."""
        for _ in range(count):
            self.device.complete_transfer()
            self.run()

    def finish(self, request: TurnRequest) -> None:
        """Complete transfers and steps until a turn has ended, and read all of it."""
        while request.output.end is None:
            if self.device.waiting_transfers:
                self.copy()
            else:
                self.step()
        request.output.delivered = len(request.output.tokens)

    def advance(self, seconds: float) -> None:
        self.clock.at += seconds
        self.run()

    # Looking in

    def check(self) -> None:
        audit = self.core.ledger.audit()
        assert audit.conserved, audit.problems

    def held_by(self, session: SessionActor) -> int:
        """How many claims a session holds."""
        return len(self.core.ledger.view.held_by(session_custodian(session.session_id)))

    @property
    def free(self) -> tuple[int, int]:
        return self.core.ledger.view.free_slots, self.core.ledger.view.free_pages

    def assert_all_free(self) -> None:
        """Nobody holds anything, nothing is counted, and nothing had to be reclaimed."""
        assert self.core.ledger.audit().at_rest, self.core.ledger.audit()
        assert self.free == (self.core.limits.num_slots, self.core.limits.num_pages)
        assert self.core.door.queued_reqs == 0
        counters = self.core.ledger.view.counters
        assert (counters.reclaimed, counters.violations) == (0, 0)


def tokens_of(request: TurnRequest) -> list[int]:
    """The generated tokens that an ended turn kept."""
    assert request.output.end is not None
    return request.output.tokens[: request.output.end.kept]


def error_of(request: TurnRequest) -> BaseException | None:
    """What a caller of an ended turn is raised."""
    assert request.output.end is not None
    return request.output.end.error


def read(request: TurnRequest) -> None:
    """The caller has received all that there is."""
    request.output.delivered = len(request.output.tokens)


def outcome(reply: Reply[int]) -> int | TenureError:
    """What a reply was settled with."""
    assert reply.is_settled

    async def ask() -> int | TenureError:
        try:
            return await reply.wait()
        except TenureError as error:
            return error

    return anyio.run(ask)
