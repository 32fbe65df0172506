"""The public door: open an engine, stream, complete, hold sessions, look, close."""

import os
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import entry_points
from typing import Any, Literal, Self

import anyio
import anyio.lowlevel
import anyio.to_thread
import structlog

from kernel import inspection
from kernel.actor import Address
from kernel.config import EngineConfig
from kernel.core import Core
from kernel.detokenizer import IncrementalDetokenizer
from kernel.environment import Environment
from kernel.errors import (
    ModelError,
    RequestExists,
    SessionNotFound,
    ValidationError,
    WrongContext,
)
from kernel.generation import Generation
from kernel.ids import SessionId, TurnId, session_custodian
from kernel.messages import CancelTurn, SessionMessage
from kernel.output_buffer import TurnOutput
from kernel.outputs import EngineStats, Health, RequestOutput, SessionInfo
from kernel.params import SamplingParams
from kernel.probe import EventProbe, NullProbe, Probe
from kernel.reply import Reply
from kernel.request import CALLER, RunningTurn
from kernel.sampling_key import request_seed
from kernel.shell import Shell
from kernel.step import Device, DeviceFactory, OpenedDevice, Tokenizer
from kernel.streaming_session import Session
from kernel.turn import TurnRequest
from ownership import AuditReport

__all__ = ["DEVICES", "Engine"]

DEVICES = "tenure.devices"
"""Entry-point group in which devices are found by name."""


class Engine:
    """Serves one model to many sessions and one-shot requests, in this process and event loop.

    Open it with :meth:`Engine.open`; all methods are called from the task tree of its event loop.
    """

    def __init__(self, core: Core, shell: Shell, tokenizer: Tokenizer | None) -> None:
        """Not for callers; use :meth:`Engine.open`."""
        self.core = core
        self.maybe_tokenizer = tokenizer
        self._shell = shell
        self._requests: dict[TurnId, Address[SessionMessage]] = {}
        self._thread = threading.get_ident()
        self._process = os.getpid()
        self._loop = _loop_id()

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        config: EngineConfig | None = None,
        *,
        device: Device | OpenedDevice | None = None,
        logger: Any = None,
        environment: Environment | None = None,
    ) -> AsyncGenerator[Self, None]:
        """Open an engine for the length of an ``async with`` block.

        Args:
            config: what to open; the defaults serve the bundled model on the CPU.
            device: a device of your own, instead of the one that ``config`` names. Alone it takes
                token ids only; as :class:`OpenedDevice` it brings its tokenizer.
            logger: structlog logger for the events; with ``config.log_events`` and none given,
                ``structlog.get_logger()`` as the application has configured it.
            environment: clock, order and ids; for tests and simulation.

        Raises:
            ModelError: the model can't be opened.
            ValidationError: the configuration contradicts itself or the model.
        """
        config = config or EngineConfig()
        environment = environment or Environment()
        opened = device if isinstance(device, OpenedDevice) else None
        if device is None:
            opened = await anyio.to_thread.run_sync(partial(_open_device, config))
        backend = opened.device if opened is not None else device
        tokenizer = opened.tokenizer if opened is not None else None
        if backend is None or isinstance(backend, OpenedDevice):
            raise ModelError(f"no device for {config.device!r}")
        core = Core(config, backend, environment, _make_probe(config, logger, environment))
        shell = Shell(core)
        failed: BaseException | None = None
        try:
            async with anyio.create_task_group() as tasks:
                await tasks.start(shell.run)
                engine = cls(core, shell, tokenizer)
                try:
                    yield engine
                except (GeneratorExit, anyio.get_cancelled_exc_class()):
                    raise
                except BaseException as error:
                    # Raised after the task group, which would wrap the caller's error in a group.
                    failed = error
                finally:
                    await engine.aclose()
        finally:
            if device is None:
                backend.close()
        if failed is not None:
            raise failed

    # Requests

    def stream(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams | None = None,
        *,
        request_id: str | None = None,
        priority: int = 0,
        tenant: str = "",
        queue_timeout_s: float | None = None,
        timeout_s: float | None = None,
        stall_timeout_s: float | None = None,
    ) -> RunningTurn:
        """One request without a session, streamed; an async context manager of deltas.

        Arguments as for :meth:`Session.turn`. Leaving the block early cancels the request.
        """
        request = self.make_request(
            "generate",
            prompt,
            params or SamplingParams(),
            request_id=request_id,
            priority=priority,
            tenant=tenant,
            queue_timeout_s=queue_timeout_s,
            timeout_s=timeout_s,
            stall_timeout_s=stall_timeout_s,
        )
        return RunningTurn(self.core, request, self._submit_one_shot, session_id=None)

    async def complete(
        self, prompt: str | Sequence[int], params: SamplingParams | None = None, **options: Any
    ) -> RequestOutput:
        """One request, to its end. Cancelling the call cancels the request.

        Options as for :meth:`stream`.
        """
        async with self.stream(prompt, params, **options) as out:
            return await out.wait()

    def generate(
        self, prompt: str | Sequence[int], params: SamplingParams | None = None, **options: Any
    ) -> Generation:
        """One request as an async iterator of cumulative :class:`RequestOutput`.

        Not an async generator: an abandoned one is cancelled when it is collected, on trio too.
        """
        return Generation(self.stream(prompt, params, **options))

    async def map(
        self,
        prompts: Sequence[str | Sequence[int]],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        concurrency: int = 64,
        on_result: Callable[[int, RequestOutput], None] | None = None,
    ) -> list[RequestOutput]:
        """Complete many prompts, at most ``concurrency`` at once; results in order of prompts.

        Args:
            prompts: texts or token ids.
            params: one for all, or one for each.
            concurrency: requests under way at once, at least 1.
            on_result: called with (index, result) as each ends, for a progress bar.

        Raises:
            ValidationError: ``concurrency`` is below 1, or ``params`` has another length.
            ExceptionGroup: a request failed; the others are cancelled.
        """
        each = _params_for(prompts, params)
        if concurrency < 1:
            raise ValidationError(
                parameter="concurrency", value=concurrency, why="it must be at least 1"
            )
        results: list[RequestOutput | None] = [None] * len(prompts)
        todo = iter(range(len(prompts)))

        async def work() -> None:
            for index in todo:
                results[index] = result = await self.complete(prompts[index], each[index])
                if on_result is not None:
                    on_result(index, result)

        async with anyio.create_task_group() as tasks:
            for _ in range(min(concurrency, len(prompts))):
                tasks.start_soon(work)
        return [result for result in results if result is not None]

    def abort(self, request_id: str) -> bool:
        """Cancel a request or turn by its id; whoever reads it gets ``RequestAborted``.

        Returns:
            False when no request with this id is open.
        """
        core = self.check_context()
        address = self._requests.get(TurnId(request_id))
        if address is None:
            return False
        core.dispatcher.post(address, CancelTurn(TurnId(request_id), "abort"), CALLER)
        return True

    # Sessions

    def session(
        self,
        *,
        session_id: str | None = None,
        idle_timeout_s: float | None = None,
        detached: bool = False,
    ) -> Session:
        """A streaming session; an async context manager.

        Args:
            session_id: a name of your own; a fresh one by default.
            idle_timeout_s: close it after so long without a turn; the config's by default.
            detached: leave it open when the block is left; :meth:`attach` finds it again.
        """
        core = self.check_context()
        if idle_timeout_s is not None and not idle_timeout_s > 0:
            raise ValidationError(
                parameter="idle_timeout_s", value=idle_timeout_s, why="it must be above 0"
            )
        return Session(
            self,
            SessionId(session_id or core.environment.new_id("session")),
            closes=not detached,
            opens=True,
            idle_timeout_s=core.config.idle_timeout_s if idle_timeout_s is None else idle_timeout_s,
            detached=detached,
        )

    def attach(self, session_id: str) -> Session:
        """An open session by its id; usable at once and as a block, which never closes it.

        Raises:
            SessionNotFound: there is none.
        """
        core = self.check_context()
        if SessionId(session_id) not in core.sessions:
            raise SessionNotFound(session_id=session_id)
        return Session(
            self,
            SessionId(session_id),
            closes=False,
            opens=False,
            idle_timeout_s=None,
            detached=True,
        )

    def list_sessions(self) -> list[SessionInfo]:
        """All open sessions."""
        core = self.check_context()
        return [
            inspection.session_info(core, actor)
            for actor in core.sessions.values()
            if not actor.is_one_shot
        ]

    # Looking in

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer.

        Raises:
            ValidationError: the device came without one.
        """
        if self.maybe_tokenizer is None:
            raise ValidationError(
                parameter="device",
                value="a bare device",
                why="it has no tokenizer; give token ids, or pass an OpenedDevice",
            )
        return self.maybe_tokenizer

    def stats(self) -> EngineStats:
        """Gauges of this moment and counters since opening."""
        return inspection.stats(self.check_context())

    def health(self) -> Health:
        """Whether the engine serves, and what it has lost."""
        return inspection.health(self.check_context(), is_running=self._shell.is_running)

    def audit(self) -> AuditReport:
        """Recompute from scratch who owns what; O(capacity)."""
        return self.core.ledger.audit()

    # The end

    async def aclose(self, *, drain_timeout_s: float = 0.0) -> None:
        """Close the engine: no new work, then drain, then close sessions, then stop the device.

        Args:
            drain_timeout_s: how long open turns may still run; 0 ends them at once.

        Idempotent. If it is cancelled, the dispatcher's own end does the rest.
        """
        core = self.core
        core.door.close(core.failure)
        with anyio.move_on_after(drain_timeout_s):
            await self._shell.until(lambda: not core.open_turns)
        if self._shell.is_running:
            core.close_sessions()
            with anyio.move_on_after(core.config.stop_timeout_s, shield=True):
                await self._shell.until(lambda: core.dispatcher.is_quiet and core.device_is_idle)
        self._shell.stop()

    # For the doors of this package

    def check_context(self) -> Core:
        """The core, if this call comes from where the engine lives.

        Raises:
            WrongContext: another process, thread or event loop.
        """
        if os.getpid() != self._process:
            raise WrongContext(where="process")
        if threading.get_ident() != self._thread:
            raise WrongContext(where="thread")
        if _loop_id() != self._loop:
            raise WrongContext(where="event loop")
        return self.core

    def make_request(
        self,
        kind: Literal["generate", "append"],
        prompt: str | Sequence[int],
        params: SamplingParams,
        *,
        request_id: str | None = None,
        wait: bool = False,
        priority: int = 0,
        tenant: str = "",
        queue_timeout_s: float | None = None,
        timeout_s: float | None = None,
        stall_timeout_s: float | None = None,
    ) -> TurnRequest:
        """Check a request and give it its output; nothing is submitted yet.

        Raises:
            ValidationError: a parameter or the prompt can't be served.
        """
        core = self.check_context()
        _check_timeouts(
            queue_timeout_s=queue_timeout_s, timeout_s=timeout_s, stall_timeout_s=stall_timeout_s
        )
        turn = TurnId(request_id or core.environment.new_id("req"))
        tokenizer = self.maybe_tokenizer if params.detokenize else None
        if params.stop:
            tokenizer = self.tokenizer
        output = TurnOutput(
            None
            if tokenizer is None
            else IncrementalDetokenizer(
                tokenizer,
                stop=params.stop,
                include_stop=params.include_stop_str_in_output,
                min_tokens=params.min_tokens,
            ),
            decode_early=bool(params.stop),
            clock=core.environment.clock,
            on_end=partial(self._forget, turn),
            watch_reader=stall_timeout_s is not None,
        )
        return TurnRequest(
            id=turn,
            kind=kind,
            tokens=self._token_ids(prompt),
            params=params,
            output=output,
            accepted=Reply(),
            wait=wait,
            priority=priority,
            tenant=tenant,
            queue_timeout_s=queue_timeout_s,
            timeout_s=timeout_s,
            stall_timeout_s=stall_timeout_s,
            seed=request_seed(core.config.seed, turn),
            context=dict(structlog.contextvars.get_contextvars()),
        )

    def enter_door(self, request: TurnRequest, session: Address[SessionMessage]) -> None:
        """Count a request, or refuse it at once.

        Raises:
            RequestExists: the id is in use.
            QueueFull: a bound is reached.
            EngineClosed: the engine takes no more work.
        """
        core = self.check_context()
        core.door.check_open()
        if request.id in self._requests:
            raise RequestExists(request_id=request.id)
        core.door.enter(request.id, len(request.tokens))
        self._requests[request.id] = session
        if core.probe.enabled:
            core.probe.bind_turn(request.id, request.context)

    async def settle(self) -> None:
        """Let posted messages be handled. Cancel-safe."""
        await self._shell.until(lambda: self.core.dispatcher.is_quiet)

    def _submit_one_shot(self, request: TurnRequest) -> Address[SessionMessage]:
        core = self.check_context()
        session_id = SessionId(f"one-shot:{request.id}")
        core.door.check_open()
        if request.id in self._requests:
            raise RequestExists(request_id=request.id)
        self.enter_door(request, Address(session_custodian(session_id)))
        try:
            core.open_session(session_id, is_one_shot=True, idle_timeout_s=None)
        except BaseException:
            core.door.leave(request.id)
            self._forget(request.id)
            raise
        return self._requests[request.id]

    def _forget(self, turn: TurnId) -> None:
        self._requests.pop(turn, None)
        self.core.probe.forget_turn(turn)

    def _token_ids(self, prompt: str | Sequence[int]) -> Sequence[int]:
        if isinstance(prompt, str):
            return self.tokenizer.encode(prompt) if prompt else []
        vocab = self.core.model.vocab_size
        for token in prompt:
            if not 0 <= token < vocab:
                raise ValidationError(
                    parameter="prompt",
                    value=token,
                    why=f"a token id of {self.core.model.name} is 0 to {vocab - 1}",
                )
        return list(prompt)


def _open_device(config: EngineConfig) -> OpenedDevice:
    found = entry_points(group=DEVICES, name=config.device)
    if not found:
        known = ", ".join(sorted(entry.name for entry in entry_points(group=DEVICES)))
        raise ValidationError(
            parameter="device", value=config.device, why=f"no such device is installed; use {known}"
        )
    factory: DeviceFactory = next(iter(found)).load()
    return factory(model=config.model, device=config.device, dtype=config.dtype)


def _make_probe(config: EngineConfig, logger: Any, environment: Environment) -> Probe:
    if logger is None and not config.log_events:
        return NullProbe()
    if logger is None:
        logger = structlog.get_logger("tenure")
    return EventProbe(logger, engine=f"engine-{os.urandom(4).hex()}", clock=environment.clock)


def _params_for(
    prompts: Sequence[object], params: SamplingParams | Sequence[SamplingParams] | None
) -> Sequence[SamplingParams]:
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * len(prompts)
    if len(params) != len(prompts):
        raise ValidationError(
            parameter="params",
            value=f"{len(params)} of them",
            why=f"there are {len(prompts)} prompts; give one for all, or one for each",
        )
    return params


def _check_timeouts(**timeouts: float | None) -> None:
    for name, value in timeouts.items():
        if value is not None and not value > 0:
            raise ValidationError(parameter=name, value=value, why="it must be above 0 seconds")


def _loop_id() -> int:
    """Which event loop runs here; 0 outside of any."""
    try:
        return id(anyio.lowlevel.current_token().native_token)
    except anyio.NoEventLoopError:
        return 0
