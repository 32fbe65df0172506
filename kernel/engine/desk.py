"""The desk behind the door: checks a request, makes it out, counts it, and knows it by its id."""

from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import Literal, Unpack, cast

import attrs
import structlog

from kernel import checks
from kernel.actors.actor import Address
from kernel.actors.reply import Reply
from kernel.chat import Prompt
from kernel.engine.context import EngineContext
from kernel.engine.core import Core
from kernel.engine.opening import find_session_files
from kernel.engine.shell import Shell
from kernel.engine.wake_calls import WakeCalls
from kernel.errors import (
    QueueFull,
    RequestExists,
    SessionNotFound,
    ValidationError,
)
from kernel.ids import SessionId, TurnId, session_custodian
from kernel.messages import CancelTurn, ExportSession, HistoryMessage, InterruptTurn, SessionMessage
from kernel.params import SamplingParams
from kernel.requests.constraining import constraint_for
from kernel.requests.conversation import Composing, chat_in
from kernel.requests.detokenizer import IncrementalDetokenizer
from kernel.requests.logit_rules import LogitRules
from kernel.requests.options import RequestOptions, check_options
from kernel.requests.output_buffer import TurnOutput
from kernel.requests.rules import SpecialText, check_vocabulary, rules_of
from kernel.requests.sampling_key import request_seed
from kernel.session_store import SessionFiles
from kernel.sessions.logged_turns import check_kept_as_json
from kernel.sessions.session import SessionActor
from kernel.step import OpenedDevice, Tokenizer
from kernel.turn import TurnRequest
from ownership import CustodianId

__all__ = ["CALLER", "ONE_SHOT", "Desk"]

ONE_SHOT = "one-shot:"
"""Begins the names of the sessions behind one-shot requests."""
CALLER = CustodianId("caller")
"""Sender of callers' messages; they carry no handles."""


class Desk:
    """Makes requests out for one engine; every call is synchronous."""

    def __init__(
        self,
        core: Core,
        shell: Shell,
        opened: OpenedDevice | None,
        session_files: SessionFiles | None = None,
    ) -> None:
        """With a bare device (``None``) prompts are token ids."""
        self.core = core
        self._shell = shell
        self._tokenizer = None if opened is None else opened.tokenizer
        self._constraints = None if opened is None else opened.constraints
        self.chat = None if opened is None else opened.chat
        self._opening_ids = () if opened is None else opened.opening_ids
        self._files = session_files
        self._requests: dict[TurnId, tuple[TurnRequest, Address[SessionMessage]]] = {}
        self._groups: dict[TurnId, Callable[[], None]] = {}
        """Requests that consist of several turns, and how to cancel all of them."""
        self._context = EngineContext()
        self._wakes = WakeCalls(core)

    def check_context(self) -> Core:
        """The core, if this call comes from where the engine lives.

        Raises:
            WrongContext: another process, thread or event loop.
        """
        self._context.check()
        return self.core

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer.

        Raises:
            ValidationError: the device came without one.
        """
        if self._tokenizer is None:
            raise ValidationError(
                parameter="device",
                value="a bare device",
                why="it has no tokenizer; give token ids, or pass an OpenedDevice",
            )
        return self._tokenizer

    @property
    def default_params(self) -> SamplingParams:
        """What a request without parameters is sampled by: the model's own, or ours."""
        return self.core.model.default_params or SamplingParams()

    def make_request(
        self,
        kind: Literal["generate", "append"],
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        wait: bool = False,
        is_one_shot: bool = False,
        **options: Unpack[RequestOptions],
    ) -> TurnRequest:
        """Check a request and give it its output; nothing is submitted yet.

        Raises:
            ValidationError: a parameter or the prompt can't be served.
        """
        core = self.check_context()
        params = self.default_params if params is None else params
        checks.instance("params", params, SamplingParams)
        if params.n != 1:
            why = "a session has one history; fork it, or use engine.stream without a session"
            raise ValidationError(parameter="n", value=params.n, why=why)
        for stop in params.stop:
            checks.encodable("stop", stop)
        can_constrain = self._constraints is not None
        rules = rules_of(params, core.model, lambda: self.tokenizer, can_constrain=can_constrain)
        checks.truth("wait", wait)
        check_options(options)
        turn = TurnId(options.get("request_id") or self.fresh_id("req", self._requests))
        output = TurnOutput(
            self._detokenizer(params),
            decode_early=bool(params.stop),
            clock=core.environment.clock,
            on_end=partial(self.forget, turn),
            watch_reader=options.get("stall_timeout_s") is not None,
            reports_logprobs=params.logprobs is not None,
        )
        # A one-shot request that only absorbs does so for outputs that begin where it ends.
        composing = self._composing(prompt, answers=kind == "generate" or is_one_shot)
        if composing is not None and is_one_shot:
            composing.compose(None, ())
        return TurnRequest(
            id=turn,
            kind=kind,
            tokens=self._token_ids(prompt) if composing is None else composing.token_ids,
            opening_ids=self._opening_ids if isinstance(prompt, str) else (),
            composing=composing,
            params=params,
            output=output,
            accepted=Reply(),
            wait=wait,
            priority=options.get("priority", 0),
            tenant=options.get("tenant", ""),
            queue_timeout_s=options.get("queue_timeout_s"),
            timeout_s=options.get("timeout_s"),
            stall_timeout_s=options.get("stall_timeout_s"),
            seed=request_seed(core.config.seed, turn),
            cache_salt=options.get("cache_salt"),
            cache_at=tuple(options.get("cache_at", ())),
            rules=rules,
            context=dict(structlog.contextvars.get_contextvars()),
        )

    async def constrain(self, request: TurnRequest) -> None:
        """Give a request the constraint of its form of output, if it has one. Cancel-safe.

        Raises:
            ValidationError: the form can't be compiled, or what compiles it isn't installed.
        """
        params, wanted = request.params, request.params.structured_outputs
        if wanted is None or self._constraints is None:
            return
        eos = () if params.ignore_eos else self.core.model.eos_token_ids
        constraint = await constraint_for(
            self._constraints,
            wanted,
            stop_ids=frozenset((*eos, *params.stop_token_ids)),
            min_tokens=params.min_tokens,
        )
        request.rules = attrs.evolve(request.rules or LogitRules(), constraint=constraint)

    def enter(self, request: TurnRequest, session: Address[SessionMessage]) -> None:
        """Count a request, or refuse it at once.

        Raises:
            RequestExists: the id is in use, or was a moment ago: a turn that was left keeps it
                until the scheduler has let go of it, at the latest when its step has landed.
            QueueFull: a bound is reached.
            EngineClosed: the engine takes no more work.
        """
        core = self.check_context()
        core.door.check_open()
        if request.id in self._requests or core.holds_turn(request.id):
            raise RequestExists(request_id=request.id)
        core.door.enter(request.id, request.expected_tokens)
        self._requests[request.id] = request, session
        if core.probe.enabled:
            core.probe.bind_turn(request.id, request.context)

    def submit_one_shot(self, request: TurnRequest) -> Address[SessionMessage]:
        """Open the session of a one-shot request; raises as :meth:`enter` does."""
        session_id = SessionId(f"{ONE_SHOT}{request.id}")
        address = Address[SessionMessage](session_custodian(session_id))
        self.enter(request, address)
        try:
            self.core.open_session(session_id, is_one_shot=True, idle_timeout_s=None)
        except BaseException:
            self.core.door.leave(request.id)
            self.forget(request.id)
            raise
        return address

    def fresh_id(self, prefix: str, taken: Container[str]) -> str:
        """An id that no caller has chosen for something of its own."""
        while (name := self.core.environment.new_id(prefix)) in taken:
            pass
        return name

    def cancel(self, request_id: TurnId) -> bool:
        """Cancel an open request, all of its turns; False when it isn't open."""
        cancel_all = self._groups.get(request_id)
        if cancel_all is None:
            return self.cancel_turn(request_id)
        cancel_all()
        return True

    def cancel_turn(self, turn: TurnId) -> bool:
        """Cancel one open turn, by one message at most; False when it isn't open."""
        if self._wakes.cancel(turn):
            return True
        request, session = self._requests.get(turn, (None, None))
        if request is None or session is None:
            return False
        if not request.is_cancel_posted:
            request.is_cancel_posted = True
            self.core.dispatcher.post(session, CancelTurn(turn, "abort"), CALLER)
        return True

    def ask(
        self,
        session: Address[SessionMessage],
        message: InterruptTurn | HistoryMessage | ExportSession,
    ) -> bool:
        """Post what a session is to answer; False when the session is gone.

        Raises:
            QueueFull: so many wait for this session that its actor's own mail is in danger.
        """
        actor = self.core.dispatcher.actor(session.name)
        if isinstance(actor, SessionActor) and 2 * actor.num_mail >= actor.mail_bound:
            # The other half is for actors.
            limit = self.core.config.max_num_queued_reqs
            raise QueueFull(what="requests", queued=actor.num_mail, limit=limit)
        return self.core.dispatcher.post(session, message, CALLER) is None

    @property
    def session_files(self) -> SessionFiles:
        """What writes and reads sessions; found when it is first asked for.

        Raises:
            ValidationError: nothing of the kind is installed.
        """
        if self._files is None:
            self._files = find_session_files()
        return self._files

    async def wake(self, session_id: SessionId, request: TurnRequest | None = None) -> None:
        """Have a dormant session read; the caller looks again then. Cancel-safe.

        Args:
            session_id: it waits until there is room for it.
            request: the turn that it is for: counted at the door, known by its id, as any that
                waits; it is out again on return.

        Raises:
            TenureError: as :meth:`SessionHandle._awake`; RequestAborted, QueueTimeout or
                TurnTimeout if the turn is cancelled meanwhile.
        """
        stored = self.check_context().stored
        if stored is None:
            raise SessionNotFound(session_id=session_id)
        if request is None:
            with self._wakes.counted():
                await self._wakes.wait(stored, session_id, None)
            return
        self.enter(request, Address(session_custodian(session_id)))
        try:
            await self._wakes.wait(stored, session_id, request)
        finally:
            self.core.door.leave(request.id)
            self.forget(request.id)

    def remove(self, session_id: SessionId) -> Reply[None] | None:
        """Have a dormant session removed from the store; ``None``: it isn't there.

        Or the engine closes, which keeps what there is.
        """
        core = self.check_context()
        is_dormant = session_id not in core.sessions and core.holds(session_id)
        if core.stored is None or core.door.closed_by is not None or not is_dormant:
            return None
        return core.stored.forget(session_id)

    def group(self, request_id: TurnId, cancel_all: Callable[[], None]) -> None:
        """Keep a request's id until :meth:`ungroup`; its own turn is only the first of several."""
        self._groups[request_id] = cancel_all

    def ungroup(self, request_id: TurnId) -> None:
        """The last turn of a request has ended. Idempotent."""
        if self._groups.pop(request_id, None) is not None:
            self.forget(request_id)

    def forget(self, turn: TurnId) -> None:
        """A request has ended."""
        if turn in self._groups:
            return
        self._requests.pop(turn, None)
        self.core.probe.forget_turn(turn)

    async def until_closed(self, session: SessionActor) -> None:
        """Wait until a session has handled its close, whatever else runs. Cancel-safe."""
        await self._shell.until(lambda: session.is_closed)

    async def settle(self) -> None:
        """Let posted messages be handled and the step that runs land. Cancel-safe."""
        core = self.check_context()
        await self._shell.until(lambda: core.dispatcher.is_quiet and core.device_is_idle)

    def _detokenizer(self, params: SamplingParams) -> IncrementalDetokenizer | None:
        if not params.stop and (self._tokenizer is None or not params.detokenize):
            return None
        return IncrementalDetokenizer(
            self.tokenizer if params.skip_special_tokens else SpecialText(self.tokenizer),
            stop=params.stop,
            include_stop=params.include_stop_str_in_output,
            min_tokens=params.min_tokens,
        )

    def _composing(self, prompt: Prompt, *, answers: bool) -> Composing | None:
        chat = chat_in(prompt, self.chat)
        if chat is None or self.chat is None:
            return None
        composing = Composing(chat, self.chat, answers)
        if self.core.stored is not None:
            check_kept_as_json(composing)
        return composing

    def _token_ids(self, prompt: object) -> Sequence[int]:
        if isinstance(prompt, str):
            checks.encodable("prompt", prompt)
            return self.tokenizer.encode(prompt) if prompt else []
        if not isinstance(prompt, Sequence) or isinstance(prompt, bytes | bytearray):
            # None and sets would pass as token ids: the one as none, the other in any order.
            why = f"it must be a sequence of token ids or a str, not {type(prompt).__name__}"
            raise ValidationError(parameter="prompt", value=prompt, why=why)
        tokens = checks.token_ids("prompt", cast("Sequence[object]", prompt))
        check_vocabulary("prompt", tokens, self.core.model)
        return tokens
