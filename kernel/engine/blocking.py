"""The blocking door, for scripts and notebooks: the same engine on a thread of its own."""

import os
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Self, Unpack

from anyio.from_thread import BlockingPortal, start_blocking_portal

from kernel.chat import Prompt
from kernel.config import EngineConfig
from kernel.engine.blocking_options import (
    AppendOptions,
    ForkOptions,
    MapOptions,
    OpenOptions,
    SessionOptions,
    TurnOptions,
)
from kernel.engine.blocking_turn import BlockingTurn, call
from kernel.engine.engine import Engine
from kernel.engine.streaming_session import Session
from kernel.errors import EngineClosed
from kernel.outputs import EngineStats, Health, RequestOutput, SessionInfo
from kernel.params import SamplingParams
from kernel.requests.options import RequestOptions
from kernel.step import Tokenizer
from ownership import AuditReport

__all__ = ["BlockingEngine", "BlockingSession"]


class BlockingSession:
    """A session for blocking code; leaving the block that made it closes it.

    Every call waits for the engine's thread, and raises what the method of
    :class:`kernel.Session` of the same name raises.
    """

    def __init__(self, portal: BlockingPortal, session: Session) -> None:
        self._portal = portal
        self._session = session

    @property
    def session_id(self) -> str:
        return self._session.session_id

    @property
    def info(self) -> SessionInfo:
        """The session at this moment."""
        return call(self._portal, lambda: self._session.info)

    def append(self, prompt: Prompt, **options: Unpack[AppendOptions]) -> RequestOutput:
        """Absorb a prompt and generate nothing; see :meth:`Session.append`."""
        return self._portal.call(partial(self._session.append, prompt, **options))

    def complete(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        **options: Unpack[TurnOptions],
    ) -> RequestOutput:
        """One turn, to its end."""

        async def run() -> RequestOutput:
            async with self._session.turn(prompt, params, **options) as turn:
                return await turn.wait()

        return self._portal.call(run)

    def turn(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        **options: Unpack[TurnOptions],
    ) -> BlockingTurn:
        """One turn, streamed: a context manager and an iterator of deltas."""
        make = partial(self._session.turn, prompt, params, **options)
        return BlockingTurn(self._portal, call(self._portal, make))

    @contextmanager
    def fork(self, **options: Unpack[ForkOptions]) -> Generator["BlockingSession", None, None]:
        """A session that begins where this one is, for a block; see :meth:`Session.fork`."""
        child = call(self._portal, partial(self._session.fork, **options))
        with self._portal.wrap_async_context_manager(child):
            yield BlockingSession(self._portal, child)

    def interrupt(self, keep: int | None = None) -> int:
        """See :meth:`Session.interrupt`."""
        return self._portal.call(self._session.interrupt, keep)

    def rewind(self, to: int) -> int:
        """See :meth:`Session.rewind`."""
        return self._portal.call(self._session.rewind, to)

    def checkpoint(self, name: str | None = None) -> str:
        """See :meth:`Session.checkpoint`."""
        return self._portal.call(self._session.checkpoint, name)

    def restore(self, mark: str) -> int:
        """See :meth:`Session.restore`."""
        return self._portal.call(self._session.restore, mark)

    def drop_checkpoint(self, mark: str) -> None:
        """See :meth:`Session.drop_checkpoint`."""
        self._portal.call(self._session.drop_checkpoint, mark)

    def export(self) -> bytes:
        """See :meth:`Session.export`."""
        return self._portal.call(self._session.export)

    def save(self, path: str | os.PathLike[str]) -> None:
        """See :meth:`Session.save`."""
        self._portal.call(self._session.save, path)

    def close(self) -> None:
        """Close now; idempotent."""
        self._portal.call(self._session.close)


class BlockingEngine:
    """``with BlockingEngine(config) as engine``: the engine for code without an event loop.

    Arguments as for :meth:`Engine.open`. The engine's event loop runs on a thread of its own; any
    thread may call, and each call waits for its answer. What :class:`kernel.Engine` raises is
    raised here, and ``EngineClosed`` outside of the block. Ctrl-C ends the wait, and leaving the
    blocks then cancels what was asked for.
    """

    def __init__(self, config: EngineConfig | None = None, **options: Unpack[OpenOptions]) -> None:
        self._open = partial(Engine.open, config, **options)
        self._portals = start_blocking_portal()
        self._portal: BlockingPortal | None = None
        self._context: AbstractContextManager[Engine] | None = None
        self._engine: Engine | None = None

    def __enter__(self) -> Self:
        self._portal = self._portals.__enter__()
        try:
            self._context = self._portal.wrap_async_context_manager(self._open())
            self._engine = self._context.__enter__()
        except BaseException as error:
            self._portals.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        context, self._context = self._context, None
        try:
            if context is not None:
                context.__exit__(kind, error, trace)
        finally:
            self._portals.__exit__(kind, error, trace)

    def complete(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        **options: Unpack[RequestOptions],
    ) -> RequestOutput:
        """One request, to its end; see :meth:`Engine.complete`."""
        portal, engine = self._inside()
        return portal.call(partial(engine.complete, prompt, params, **options))

    def map(
        self,
        prompts: Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        **options: Unpack[MapOptions],
    ) -> list[RequestOutput]:
        """Complete many prompts; see :meth:`Engine.map`."""
        portal, engine = self._inside()
        return portal.call(partial(engine.map, prompts, params, **options))

    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        **options: Unpack[RequestOptions],
    ) -> BlockingTurn:
        """One request, streamed: a context manager and an iterator of deltas."""
        portal, engine = self._inside()
        return BlockingTurn(portal, call(portal, partial(engine.stream, prompt, params, **options)))

    @contextmanager
    def session(self, **options: Unpack[SessionOptions]) -> Generator[BlockingSession, None, None]:
        """A session for the length of the block; see :meth:`Engine.session`."""
        portal, engine = self._inside()
        session = call(portal, partial(engine.session, **options))
        with portal.wrap_async_context_manager(session):
            yield BlockingSession(portal, session)

    def attach(self, session_id: str) -> BlockingSession:
        """See :meth:`Engine.attach`."""
        portal, engine = self._inside()
        return BlockingSession(portal, call(portal, partial(engine.attach, session_id)))

    def session_ids(self) -> list[str]:
        """See :meth:`Engine.session_ids`."""
        portal, engine = self._inside()
        return call(portal, engine.session_ids)

    def list_sessions(self) -> list[SessionInfo]:
        """See :meth:`Engine.list_sessions`; the turns of other threads go on meanwhile."""
        portal, engine = self._inside()

        async def run() -> list[SessionInfo]:
            return [info async for info in engine.iter_sessions()]

        return portal.call(run)

    def forget(self, session_id: str) -> None:
        """See :meth:`Engine.forget`."""
        portal, engine = self._inside()
        portal.call(engine.forget, session_id)

    def restore(
        self, path: str | os.PathLike[str], *, session_id: str | None = None
    ) -> BlockingSession:
        """See :meth:`Engine.restore`."""
        portal, engine = self._inside()
        restore = partial(engine.restore, path, session_id=session_id)
        return BlockingSession(portal, portal.call(restore))

    def import_session(self, data: bytes, *, session_id: str | None = None) -> BlockingSession:
        """See :meth:`Engine.import_session`."""
        portal, engine = self._inside()
        bring_in = partial(engine.import_session, data, session_id=session_id)
        return BlockingSession(portal, portal.call(bring_in))

    def stats(self) -> EngineStats:
        """See :meth:`Engine.stats`."""
        portal, engine = self._inside()
        return call(portal, engine.stats)

    def health(self) -> Health:
        """See :meth:`Engine.health`."""
        portal, engine = self._inside()
        return call(portal, engine.health)

    def audit(self) -> AuditReport:
        """See :meth:`Engine.audit`."""
        portal, engine = self._inside()
        return call(portal, engine.audit)

    def abort(self, request_id: str) -> bool:
        """See :meth:`Engine.abort`."""
        portal, engine = self._inside()
        return call(portal, partial(engine.abort, request_id))

    def reset_prefix_cache(self) -> None:
        """See :meth:`Engine.reset_prefix_cache`."""
        portal, engine = self._inside()
        call(portal, engine.reset_prefix_cache)

    def default_params(self, **given: Any) -> SamplingParams:
        """See :meth:`Engine.default_params`."""
        portal, engine = self._inside()
        return call(portal, partial(engine.default_params, **given))

    @property
    def tokenizer(self) -> Tokenizer:
        """See :attr:`Engine.tokenizer`."""
        portal, engine = self._inside()
        return call(portal, lambda: engine.tokenizer)

    @property
    def takes_messages(self) -> bool:
        """See :attr:`Engine.takes_messages`."""
        portal, engine = self._inside()
        return call(portal, lambda: engine.takes_messages)

    def _inside(self) -> tuple[BlockingPortal, Engine]:
        if self._portal is None or self._engine is None or self._context is None:
            raise EngineClosed(why="the with block is not entered")
        return self._portal, self._engine
