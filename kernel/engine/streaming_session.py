"""The caller's side of a session."""

from types import TracebackType
from typing import Literal, Self, Unpack, get_args

import anyio

from kernel import checks
from kernel.actors.actor import Address
from kernel.actors.reply import Reply
from kernel.chat import Prompt
from kernel.config import OnLimit
from kernel.engine.core import Core
from kernel.engine.desk import CALLER, ONE_SHOT, Desk
from kernel.engine.request import RunningTurn
from kernel.engine.session_handle import SessionHandle
from kernel.errors import SessionNotFound, StoreError, ValidationError
from kernel.ids import SessionId
from kernel.messages import CloseSession, SessionMessage
from kernel.outputs import RequestOutput
from kernel.params import SamplingParams
from kernel.requests.options import RequestOptions
from kernel.sessions.session import SessionActor
from kernel.state_image import StateImage
from kernel.turn import TurnRequest

__all__ = ["Session", "check_session_id", "keep_or_close", "open_session"]


class Session(SessionHandle):
    """A conversation whose recurrent state stays between turns.

    Made by :meth:`Engine.session` and :meth:`fork` (leaving the block closes it, unless
    ``detached``) and by :meth:`Engine.attach` (which never closes).
    """

    def __init__(
        self,
        desk: Desk,
        session_id: SessionId,
        *,
        closes: bool,
        opens: bool,
        idle_timeout_s: float | None,
        detached: bool,
        slides: bool = False,
        resumes: bool = False,
        parent: "Session | None" = None,
    ) -> None:
        # An attached one is bound here, so that it is this session for ever and no later namesake.
        super().__init__(desk, session_id, None)
        if not opens:
            self._resident()
        self._resumes = resumes
        self._slides = slides
        self._closes = closes
        self._opens = opens
        self._idle_timeout_s = idle_timeout_s
        self._detached = detached
        self._parent = parent

    async def __aenter__(self) -> Self:
        """Open the session, at once or not at all. Cancel-safe.

        A dormant one is read first, and a detached fork is kept first, where there is a store.

        Raises:
            TooManySessions: the engine's bound is reached.
            SessionExists: the id is taken.
            SessionNotFound: it was attached, and has been closed since.
            SessionClosed: the session that it forks is closed.
            StoreError: it is in the store, and can't be read; or a detached fork can't be kept.
            EngineClosed: the engine takes no more work.
        """
        core = self._desk.check_context()
        while not self._opens or (self._resumes and core.knows(self._id)):
            try:
                actor = await self._awake()
                if actor.is_closed or core.sessions.get(self._id) is not actor:
                    raise SessionNotFound(session_id=self._id)
            except SessionNotFound:
                if not self._resumes:
                    raise
                self._sit(None)  # it was on its way out: go on with another one, or a new one
            else:
                # What was opened to outlive its block does so, whoever resumes it.
                self._closes = self._closes and not actor.identity.is_detached
                return self
        if self._parent is not None:
            await self._parent._awake()
        actor = core.open_session(
            self._id,
            is_one_shot=False,
            idle_timeout_s=self._idle_timeout_s,
            slides=self._slides,
            parent=None if self._parent is None else self._parent._open(),
        )
        actor.identity.is_detached = self._detached
        self._sit(actor.seat)
        if self._detached and actor.state.log:
            await keep_or_close(actor, self, actor.state.image)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._closes:
            self._desk.check_context()
            self._post_close()
            # So that the next block finds the id and the place free; the close itself is posted.
            try:
                await self._closed()
            except StoreError:
                if error is None:
                    raise

    async def append(
        self,
        prompt: Prompt,
        *,
        wait: bool = False,
        timeout_s: float | None = None,
        cache_salt: str | None = None,
    ) -> RequestOutput:
        """Absorb a prompt and generate nothing; returns when it is committed.

        The last token is held back as pending, for the next turn to start from. Cancelling rolls
        back: nothing of the prompt is in the log then.

        Raises:
            SessionBusy: a turn runs, and ``wait`` was not asked for.
            ValidationError: the prompt is empty or can never fit.
        """
        request = self._desk.make_request(
            "append", prompt, wait=wait, timeout_s=timeout_s, cache_salt=cache_salt
        )
        async with self._running(request, "rollback") as turn:
            return await turn.wait()

    def turn(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        wait: bool = False,
        on_exit: Literal["rollback", "keep"] = "rollback",
        **options: Unpack[RequestOptions],
    ) -> RunningTurn:
        """One turn: absorb the prompt, then generate; an async context manager.

        Args:
            prompt: text, token ids, or messages; only what is new. Empty continues from the log.
            params: sampling; :meth:`Engine.default_params` by default.
            wait: queue behind a running turn instead of raising ``SessionBusy``.
            on_exit: what leaving early does: ``"rollback"`` or ``"keep"`` what was received.
            options: see :class:`RequestOptions`.
        """
        if on_exit not in ("rollback", "keep"):
            raise ValidationError(
                parameter="on_exit", value=on_exit, why="use 'rollback' or 'keep'"
            )
        request = self._desk.make_request("generate", prompt, params, wait=wait, **options)
        return self._running(request, on_exit)

    def fork(
        self,
        *,
        session_id: str | None = None,
        idle_timeout_s: float | None = None,
        detached: bool = False,
    ) -> "Session":
        """A new session that begins where this one is; an async context manager.

        The fork is taken when its block is entered: the log as it is then, without the turn that
        runs. Its first turn starts from a copy of this session's committed state, or from its
        snapshot in the store, as long as that is there; when it was given up, replaced or closed,
        the turn computes the log again. Both go their own ways, and neither can hold or free what
        is the other's.

        Args:
            session_id: a name of your own; a fresh one by default.
            idle_timeout_s: as in :meth:`Engine.session`.
            detached: as in :meth:`Engine.session`; where there is a store, its history is on the
                disk when its block begins.

        Raises:
            ValidationError: the name or the time can't be used. What can go wrong at its block is
                said by ``__aenter__``; nothing is half open, and there is nothing to cancel.
        """
        return open_session(
            self._desk,
            session_id=session_id,
            idle_timeout_s=idle_timeout_s,
            detached=detached,
            parent=self,
        )

    def _running(self, request: TurnRequest, on_exit: Literal["rollback", "keep"]) -> RunningTurn:
        def submit(request: TurnRequest) -> Address[SessionMessage]:
            actor = self._open()
            self._desk.enter(request, Address(actor.name))
            return Address(actor.name)

        return RunningTurn(
            self._desk,
            request,
            submit,
            session_id=self._id,
            on_exit=on_exit,
            prepare=self._awake,
        )


def open_session(
    desk: Desk,
    *,
    session_id: str | None,
    idle_timeout_s: float | None,
    detached: bool,
    on_limit: OnLimit | None = None,
    resume: bool = False,
    parent: Session | None = None,
) -> Session:
    """A session to be opened by its block, under a checked or a fresh name.

    Raises:
        ValidationError: the name or the time can't be used, or the model can't slide.
    """
    core = desk.check_context()
    slides = (core.config.on_limit if on_limit is None else on_limit) == "slide"
    check_on_limit("on_limit", on_limit, core)
    checks.seconds("idle_timeout_s", idle_timeout_s)
    check_session_id(session_id)
    checks.truth("resume", resume)
    return Session(
        desk,
        SessionId(session_id or desk.fresh_id(core.session_prefix, core.sessions)),
        closes=not detached,
        opens=True,
        idle_timeout_s=core.config.idle_timeout_s if idle_timeout_s is None else idle_timeout_s,
        detached=detached,
        slides=slides,
        resumes=resume,
        parent=parent,
    )


async def keep_or_close(actor: SessionActor, session: Session, image: StateImage | None) -> None:
    """What begins with a log and is to stay is durable before anyone is told that it is here.

    Cancelling, or a store that can't keep it, closes the session.

    Args:
        actor: of the session.
        session: the caller's object of it.
        image: of its state; left to the store as well.

    Raises:
        StoreError: the store could not keep it.
    """
    if actor.archive is None:
        return
    kept: Reply[None] = Reply()
    actor.archive.keep_whole(image, kept)
    try:
        await kept.wait()
    except StoreError:
        await session.close()
        raise
    except anyio.get_cancelled_exc_class():
        if not actor.is_closed and not actor.is_close_posted:
            actor.is_close_posted = True
            actor.mailbox.post(CloseSession(), CALLER)
        raise


def check_session_id(session_id: str | None) -> None:
    """Refuse a name that no session can have; ``None`` is none given."""
    checks.name("session_id", session_id)
    if session_id is not None and session_id.startswith(ONE_SHOT):
        raise ValidationError(
            parameter="session_id",
            value=session_id,
            why=f"{ONE_SHOT!r} begins the names of one-shot requests; choose another",
        )


def check_on_limit(parameter: str, on_limit: OnLimit | None, core: Core) -> None:
    """Refuse a policy that isn't known, or that the model or the pools can't follow."""
    if on_limit is not None and on_limit not in get_args(OnLimit):
        known = ", ".join(get_args(OnLimit))
        raise ValidationError(parameter=parameter, value=on_limit, why=f"use {known}")
    if on_limit == "slide" and core.why_no_slides:
        raise ValidationError(parameter=parameter, value=on_limit, why=core.why_no_slides)
