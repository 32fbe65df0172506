"""The public door: open an engine, stream, complete, hold sessions, look, close."""

import math
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Self, Unpack

import anyio
import anyio.from_thread
import anyio.to_thread
import attrs

from kernel import checks
from kernel.chat import Prompt
from kernel.config import EngineConfig
from kernel.engine import inspection
from kernel.engine.choices import make_choices
from kernel.engine.core import Core
from kernel.engine.desk import Desk
from kernel.engine.generation import Generation
from kernel.engine.interrupts import protect_from_keyboard_interrupt
from kernel.engine.many import complete_many, params_for
from kernel.engine.opening import make_probe, open_device, open_store
from kernel.engine.request import RunningTurn
from kernel.engine.sessions import EngineSessions
from kernel.engine.shell import ENDED_UNASKED, Shell
from kernel.environment import Environment
from kernel.errors import EngineClosed, ModelError
from kernel.ids import TurnId
from kernel.loading import LoadProgress, OnProgress, no_progress
from kernel.outputs import EngineStats, Health, RequestOutput
from kernel.params import SamplingParams
from kernel.requests.options import RequestOptions
from kernel.session_store import SessionFiles, StoreWorker
from kernel.step import Device, OpenedDevice, Tokenizer
from ownership import AuditReport

__all__ = ["Engine"]


class Engine(EngineSessions):
    """Serves one model to many sessions and one-shot requests, in this process and event loop.

    Open it with :meth:`Engine.open`; all methods are called from the task tree of its event loop.
    """

    def __init__(
        self,
        core: Core,
        shell: Shell,
        opened: OpenedDevice | None,
        session_files: SessionFiles | None = None,
    ) -> None:
        """Not for callers; use :meth:`Engine.open`."""
        super().__init__(Desk(core, shell, opened, session_files))
        self.core = core
        self._shell = shell

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        config: EngineConfig | None = None,
        *,
        device: Device | OpenedDevice | None = None,
        logger: Any = None,
        environment: Environment | None = None,
        progress: OnProgress = no_progress,
        session_files: SessionFiles | None = None,
    ) -> AsyncGenerator[Self, None]:
        """Open an engine for the length of an ``async with`` block.

        Args:
            config: what to open; the defaults serve the bundled model on the CPU.
            device: a device of your own, instead of the one that ``config`` names. Alone it takes
                token ids only; as :class:`OpenedDevice` it brings its tokenizer.
            logger: structlog logger for the events; with ``config.log_events`` and none given,
                ``structlog.get_logger()`` as the application has configured it.
            environment: clock, order and ids; for tests and simulation.
            progress: told how far the loading of the model is, on the thread that loads it; use
                ``anyio.from_thread.run_sync`` to get back. Cancelling the opening ends the loading.
            session_files: what keeps sessions in ``config.session_store`` and writes files of
                them; ``None``: what is installed.

        Raises:
            ModelError: the model can't be opened.
            NotEnoughMemory: the model, or one turn of it, doesn't fit into the memory.
            ValidationError: the configuration contradicts itself or the model.
            SessionStoreError: the store is another model's, damaged, or another engine has it open.
            EngineClosed: at the end of the block: the dispatcher's own task was cancelled.
        """
        protect_from_keyboard_interrupt()
        config = config or EngineConfig()
        environment = environment or Environment()
        opened = device if isinstance(device, OpenedDevice) else None
        if device is None:
            tell = partial(_unless_cancelled, progress)
            opened = await anyio.to_thread.run_sync(partial(open_device, config, tell))
        backend = opened.device if opened is not None else device
        if backend is None or isinstance(backend, OpenedDevice):
            raise ModelError(f"no device for {config.device!r}")
        failed: BaseException | None = None
        is_cancelled = False
        store: StoreWorker | None = None
        try:
            opening = partial(open_store, config, backend.model, session_files)
            store = await environment.run_blocking(opening) if config.session_store else None
            probe = make_probe(config, logger, environment)
            ask_memory = opened.memory if opened is not None else None
            core = Core(config, backend, environment, probe, memory=ask_memory, store=store)
            shell = Shell(core)
            engine = cls(core, shell, opened, session_files)
            async with anyio.create_task_group() as tasks:
                try:
                    await tasks.start(shell.run)
                    yield engine
                except (GeneratorExit, anyio.get_cancelled_exc_class()):
                    is_cancelled = True
                    raise
                except BaseException as error:
                    # Raised after the task group, which would wrap the caller's error in a group.
                    failed = error
                finally:
                    await engine._end(0.0)
            if failed is None and (is_cancelled or shell.ended_unasked):
                # The task group itself cancelled the block; that must not look like a normal end.
                failed = EngineClosed(why=ENDED_UNASKED)
        finally:
            _close_store(store, config.stop_timeout_s)
            if device is None:
                backend.close()
        if failed is not None:
            raise failed

    # Requests

    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        **options: Unpack[RequestOptions],
    ) -> RunningTurn:
        """One request without a session, streamed; an async context manager of deltas.

        Leaving the block early cancels the request. With ``SamplingParams(n=...)`` the deltas of
        the outputs come mixed, each with its ``index``, and the prompt is absorbed once.

        Args:
            prompt: text, token ids, or the messages of a conversation.
            params: sampling; :meth:`Engine.default_params` by default.
            options: see :class:`RequestOptions`.
        """
        if options:
            # In untyped code "wait" would be taken for the session's.
            checks.known_names(options, RequestOptions.__annotations__, of="a request")
        if isinstance(params, SamplingParams) and params.n != 1:
            return make_choices(self._desk, prompt, params, **options)
        request = self._desk.make_request("generate", prompt, params, is_one_shot=True, **options)
        return RunningTurn(self._desk, request, self._desk.submit_one_shot, session_id=None)

    async def complete(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        **options: Unpack[RequestOptions],
    ) -> RequestOutput:
        """One request, to its end. Cancelling the call cancels the request."""
        async with self.stream(prompt, params, **options) as out:
            return await out.wait()

    def generate(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        **options: Unpack[RequestOptions],
    ) -> Generation:
        """One request as an async iterator of cumulative :class:`RequestOutput`.

        Not an async generator: an abandoned one is cancelled when it is collected, on trio too.
        """
        return Generation(self.stream(prompt, params, **options))

    async def map(
        self,
        prompts: Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        concurrency: int = 64,
        on_result: Callable[[int, RequestOutput], None] | None = None,
    ) -> list[RequestOutput]:
        """Complete many prompts, at most ``concurrency`` at once; results in order of prompts.

        Args:
            prompts: texts, token ids, or conversations.
            params: one for all, or one for each.
            concurrency: requests under way at once, at least 1.
            on_result: called with (index, result) as each ends, for a progress bar.

        Raises:
            ValidationError: ``concurrency`` is below 1, or ``params`` has another length.
            TenureError: a request failed; as :meth:`complete` raises it and in no group, with a
                note that names the index of its prompt. The others are cancelled. What
                ``on_result`` raises goes the same way. ``except*`` catches it as well.
            RequestAborted: a task of this call was cancelled, and not by its caller.
        """
        each = params_for(prompts, params)
        checks.integer("concurrency", concurrency, least=1)
        return await complete_many(
            lambda index: self.complete(prompts[index], each[index]),
            len(prompts),
            concurrency=min(concurrency, self.core.config.max_num_queued_reqs),
            on_result=on_result,
        )

    def abort(self, request_id: str) -> bool:
        """Cancel a request or turn by its id; whoever reads it gets ``RequestAborted``.

        Returns:
            False when no request with this id is open.
        """
        self._desk.check_context()
        return self._desk.cancel(TurnId(request_id))

    # Looking in

    def default_params(self, **given: Any) -> SamplingParams:
        """The model's own sampling parameters, with what is given in place of theirs.

        A request without parameters is sampled by ``default_params()``: what the model's
        generation_config.json says, else the defaults of :class:`SamplingParams`. A
        ``SamplingParams(...)`` of the caller's is taken as it is, whole: its unset fields have the
        defaults of the class, and the model's file has no say in it.

        Raises:
            ValidationError: an unknown name, a bad value, or one that contradicts the model's.
        """
        checks.known_names(given, attrs.fields_dict(SamplingParams), of="SamplingParams")
        return attrs.evolve(self._desk.default_params, **given)

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer.

        Raises:
            ValidationError: the device came without one.
        """
        return self._desk.tokenizer

    @property
    def takes_messages(self) -> bool:
        """Whether the model has a chat template, so that prompts may be messages."""
        return self._desk.chat is not None

    def stats(self) -> EngineStats:
        """Gauges of this moment and counters since opening; O(states that are held)."""
        return inspection.stats(self._desk.check_context())

    def health(self) -> Health:
        """Whether the engine serves, and what it has lost."""
        return inspection.health(self._desk.check_context(), is_running=self._shell.is_running)

    def audit(self) -> AuditReport:
        """Recompute from scratch who owns what; O(capacity), half a millisecond a thousand pages.

        With events on, it writes one, ``ledger.audited``.
        """
        return self.core.ledger.audit()

    def reset_prefix_cache(self) -> None:
        """Evict every state of the prefix cache; requests go on, and fill it again.

        Posted, and done before any request that is submitted after this call is admitted. Without
        prefix caching it does nothing.
        """
        self._desk.check_context().clear_cache()

    async def settle(self) -> None:
        """Let what was posted be handled and the step that runs land; cancel-safe.

        For tests and for reading a balance. While turns run there is always a step, so this
        returns when they have ended.
        """
        await self._desk.settle()

    # The end

    async def aclose(self, *, drain_timeout_s: float = 0.0) -> None:
        """Close the engine: no new work, then drain, then close sessions, then stop the device.

        Args:
            drain_timeout_s: how long open turns may still run; 0 ends them at once.

        Idempotent. If it is cancelled, the dispatcher's own end does the rest.

        Raises:
            ValidationError: the time is negative, or no number.
        """
        self._desk.check_context()
        if drain_timeout_s != math.inf:
            checks.number("drain_timeout_s", drain_timeout_s)
        await self._end(drain_timeout_s)

    async def _end(self, drain_timeout_s: float) -> None:
        core = self.core
        core.close_door(core.failure)
        left_s = core.config.stop_timeout_s
        try:
            with anyio.move_on_after(drain_timeout_s):
                await self._shell.until(lambda: core.dispatcher.is_quiet and not core.open_turns)
            if self._shell.is_running:
                with anyio.move_on_after(left_s, shield=True) as stopping:
                    await self._leave_to_store(left_s / 2)
                    core.close_sessions()
                    await self._shell.until(
                        lambda: (
                            core.dispatcher.is_quiet and core.device_is_idle and core.store_is_idle
                        )
                    )
                left_s = max(0.0, stopping.deadline - anyio.current_time())
        finally:
            self._shell.stop(join_timeout_s=left_s)

    async def _leave_to_store(self, timeout_s: float) -> None:
        """Have the states of sessions at rest kept, as far as the time goes; their logs are."""
        stored = self.core.stored
        if stored is None or self.core.failure is not None:
            return
        stored.residents.all_to_rest()
        with anyio.move_on_after(timeout_s):
            await self._shell.until(lambda: stored.residents.is_settled)


def _close_store(store: StoreWorker | None, timeout_s: float) -> None:
    """Let go of the store's lock; the core has closed it, unless it was never made."""
    if store is not None:
        store.stop()
        store.join(timeout_s)


def _unless_cancelled(progress: OnProgress, now: LoadProgress) -> None:
    """On the loading thread: a cancelled opening must not wait for all of a large model."""
    anyio.from_thread.check_cancelled()
    progress(now)
