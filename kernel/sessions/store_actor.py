"""The store actor: between sessions and the worker that keeps them on disk.

It holds no handle and knows no file. A session asks for one thing at a time and is answered exactly
once, when the worker has reported; the worker's thread posts its reports, so nothing here is the
result of an await. When this actor dies, whoever has open business is told, and a successor goes on
over the same worker: a report on business of a former life finds nobody who waits for it.

What sessions may have under way is bounded by them (one change, one snapshot, one image each). The
bytes of images are bounded here: a snapshot beyond the bound is refused, since there is always the
log; an image to be read waits until there is room for it.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import assert_never, final

import attrs

from kernel.actors.actor import Actor, Address, System, Timer
from kernel.errors import EngineFault
from kernel.ids import STORE, SessionId, TurnId
from kernel.messages import Down, SessionMessage, StoreMessage
from kernel.messages.store import (
    AsksWait,
    FetchState,
    ForgetStored,
    JobDone,
    LogStored,
    ReadStored,
    ReleaseImage,
    StateFetched,
    StateStored,
    StoreLog,
    StoreOverdue,
    StoreState,
)
from kernel.session_store import (
    KeepState,
    ReadSession,
    RemoveSession,
    SessionRecord,
    StoreFault,
    StoreJob,
    StoreReport,
    StoreWorker,
)
from kernel.sessions.image_shelf import MAX_IMAGE_BYTES
from kernel.sessions.store_business import (
    Business,
    Change,
    Removal,
    Snapshot,
    as_record,
    jobs_of,
    odd_report,
    position_of,
    removal_error,
    stopped,
    whole_report,
)
from kernel.state_image import StateImage
from ownership import CustodianId

__all__ = ["Ask", "StoreActor", "StoreRules"]

Ask = ReadStored | ForgetStored

_MOST_ASKS = 32
"""Under way at once, of those that anybody may have; the others wait outside of the mailbox."""


@attrs.frozen
class StoreRules:
    """The numbers that the store keeps to."""

    max_image_bytes: int = MAX_IMAGE_BYTES
    """Most bytes of images on their way to the disk, and as many that were read from it; one image
    may always be on its way."""
    timeout_s: float = 60.0
    """A job that takes longer counts as a death of this actor."""
    mail_bound: int = 1024


@final
class StoreActor(Actor[StoreMessage]):
    """Hands jobs to one worker, and its reports to whoever asked.

    Args:
        worker: outlives this actor.
        new_job: numbers jobs, over all lives of this actor.
        asks: what callers want of sessions without an actor; told by :class:`AsksWait`.
        on_record: told what was read of a session that is to be woken; mustn't raise.
    """

    def __init__(
        self,
        system: System,
        worker: StoreWorker,
        rules: StoreRules,
        *,
        new_job: Callable[[], int],
        asks: deque[Ask],
        on_record: Callable[[SessionId, SessionRecord | StoreFault], None],
    ) -> None:
        super().__init__(STORE, system, mail_bound=rules.mail_bound)
        self._worker = worker
        self._rules = rules
        self._new_job = new_job
        self._asks = asks
        self._num_asks = 0
        self._on_record = on_record
        self._here: Address[StoreMessage] = Address(STORE)
        self._open: dict[int, Business] = {}
        self._deadlines: deque[tuple[float, int]] = deque()
        self._timer: Timer | None = None
        self._bytes_out = 0
        self._bytes_in = 0
        self._images: dict[TurnId, FetchState] = {}
        """Whose images are being read, or were read and aren't released."""
        self._reading: list[FetchState] = []
        """What the worker has yet to report, wanted or not: till then it takes up its room."""
        self._fetches: deque[FetchState] = deque()

    @property
    def is_idle(self) -> bool:
        """Whether no job is under way and none waits."""
        return not self._open and not self._fetches and not self._asks

    def handle(self, message: StoreMessage, /) -> None:
        """Take one message."""
        match message:
            case StoreLog():
                self._submit(message.jobs, Change(message.asker, message.change))
            case StoreState():
                self._store_state(message)
            case FetchState():
                self._fetches.append(message)
                self._fetch_next()
            case ReleaseImage():
                self._release(message.turn)
            case AsksWait():
                self._ask_next()
            case ReadStored() | ForgetStored():
                self._ask(message)
            case JobDone():
                self._done(message.job, message.report)
            case StoreOverdue():
                self._timer = None
                self._watch()
            case Down():
                self._forget_images_of(message.name)
            case _:
                assert_never(message)

    def refuse(self, message: StoreMessage, error: BaseException, /) -> None:
        """A request that was never handled has failed; of others only the report is lost."""
        fault = stopped(error)
        match message:
            case StoreLog():
                self._tell(message.asker, LogStored(message.change, fault))
            case StoreState():
                answer = StateStored(message.number, position_of(message), fault)
                self._tell(message.asker, answer)
            case FetchState():
                self._tell(message.asker, StateFetched(message.turn, fault))
            case ReadStored():
                self._on_record(message.session_id, fault)
            case ForgetStored():
                message.reply.fail(removal_error(message.session_id, fault))
            case AsksWait():
                while self._asks:
                    self.refuse(self._asks.popleft(), error)
            case _:
                pass

    def abandon(self, error: BaseException, /) -> None:
        """Answer the callers; sessions hear of it as ``Down``."""
        fault = stopped(error)
        if self._timer is not None:
            self._timer.cancel()
        for business in self._open.values():
            if isinstance(business, ReadStored):
                self._on_record(business.session_id, fault)
            elif isinstance(business, Removal):
                business.reply.fail(removal_error(business.session_id, fault))
        self.refuse(AsksWait(), error)

    def has_business_with(self, name: CustodianId, /) -> bool:
        """A session that dies may hold an image, or wait for one."""
        return name != self.name and bool(self._images or self._fetches)

    # Jobs

    def _ask_next(self) -> None:
        while self._asks and self._num_asks < _MOST_ASKS:
            self._ask(self._asks.popleft())

    def _ask(self, ask: Ask) -> None:
        self._num_asks += 1
        if isinstance(ask, ReadStored):
            self._submit((ReadSession(ask.session_id),), ask)
        else:
            removal = Removal(ask.session_id, ask.reply)
            self._submit((RemoveSession(ask.session_id),), removal)

    def _submit(self, jobs: Sequence[StoreJob], business: Business) -> None:
        """Hand over jobs that are one business: one report comes back, however many they are."""
        number = self._new_job()
        self._open[number] = business
        self._deadlines.append((self.system.now() + self._rules.timeout_s, number))
        reports: list[StoreReport] = []

        def done(report: StoreReport) -> None:
            reports.append(report)
            if len(reports) == len(jobs):
                self.system.post_from_thread(
                    self._here, JobDone(number, whole_report(reports, business))
                )

        for job in jobs:
            try:
                self._worker.submit(job, done)
            except Exception as error:
                done(StoreFault(repr(error), "failed", error))
        if self._timer is None:
            self._watch()

    def _watch(self) -> None:
        """Die of a job that is overdue; else look again when the oldest one would be."""
        while self._deadlines and self._deadlines[0][1] not in self._open:
            self._deadlines.popleft()
        if not self._deadlines:
            return
        at, number = self._deadlines[0]
        if at <= self.system.now():
            why = f"a job took longer than {self._rules.timeout_s:g} s"
            raise EngineFault(actor=STORE, why=why)
        overdue = StoreOverdue(number)
        self._timer = self.system.call_at(
            at, lambda: self.system.post(self._here, overdue, self.name)
        )

    def _done(self, number: int, report: StoreReport) -> None:
        business = self._open.pop(number, None)
        if not self._open:
            self._deadlines.clear()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        fault = report if isinstance(report, StoreFault) else None
        if isinstance(business, ReadStored | Removal):
            self._num_asks -= 1
            self._ask_next()
        match business:
            case Change():
                self._tell(business.asker, LogStored(business.number, fault))
            case Snapshot():
                self._bytes_out -= business.nbytes
                answer = StateStored(business.number, business.position, fault)
                self._tell(business.asker, answer)
            case FetchState():
                self._fetched(business, report)
            case ReadStored():
                self._on_record(business.session_id, as_record(report))
            case Removal():
                if fault is None or fault.reason == "missing":
                    business.reply.answer(None)
                else:
                    business.reply.fail(removal_error(business.session_id, fault))
            case None:
                pass  # asked for in a former life
            case _:
                assert_never(business)

    # Images

    def _store_state(self, message: StoreState) -> None:
        position = position_of(message)
        nbytes = message.job.image.nbytes if isinstance(message.job, KeepState) else 0
        if self._bytes_out and self._bytes_out + nbytes > self._rules.max_image_bytes:
            why = f"{self._bytes_out} bytes of snapshots are on their way to the disk"
            fault = StoreFault(why, "refused")
            self._tell(message.asker, StateStored(message.number, position, fault))
            return
        self._bytes_out += nbytes
        self._submit((message.job,), Snapshot(message.asker, message.number, position, nbytes))

    def _fetch_next(self) -> None:
        while self._fetches:
            nbytes = self._fetches[0].nbytes
            if self._bytes_in and self._bytes_in + nbytes > self._rules.max_image_bytes:
                return
            fetch = self._fetches.popleft()
            self._images[fetch.turn] = fetch
            self._reading.append(fetch)
            self._bytes_in += nbytes
            self._submit(jobs_of(fetch), fetch)

    def _fetched(self, fetch: FetchState, report: StoreReport) -> None:
        found = report if isinstance(report, StateImage | StoreFault) else odd_report(report)
        self._reading = [one for one in self._reading if one is not fetch]
        if self._images.get(fetch.turn) is not fetch:
            self._bytes_in -= fetch.nbytes  # released meanwhile; its turn may have a namesake
            self._fetch_next()
            return
        if isinstance(found, StoreFault):
            self._release(fetch.turn)
        self._tell(fetch.asker, StateFetched(fetch.turn, found))

    def _release(self, turn: TurnId) -> None:
        self._fetches = deque(fetch for fetch in self._fetches if fetch.turn != turn)
        image = self._images.pop(turn, None)
        if image is not None and all(one is not image for one in self._reading):
            self._bytes_in -= image.nbytes
        self._fetch_next()

    def _forget_images_of(self, asker: CustodianId) -> None:
        """The asker died; whatever it had asked for is of no use any more."""
        for fetch in (*self._fetches, *self._images.values()):
            if fetch.asker == asker:
                self._release(fetch.turn)

    def _tell(self, asker: CustodianId, answer: LogStored | StateStored | StateFetched) -> None:
        self.system.post(Address[SessionMessage](asker), answer, self.name)
