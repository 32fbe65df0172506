"""What a session holds at rest: its token log, and the states that cache the log.

The log is the truth. It always ends with at least one token that the state has not absorbed
(position <= length - 1); what lies between is *pending*. Log and state commit separately: a state
that lies beyond what the log keeps is rolled back, and the next turn absorbs the difference.
"""

from array import array
from collections.abc import Sequence

import attrs

from kernel.errors import ValidationError
from kernel.ids import TurnId
from kernel.outputs import CacheMiss
from kernel.requests.conversation import Conversation
from kernel.requests.output_buffer import Receipt
from kernel.sessions.image_shelf import ImageShelf
from kernel.sessions.kept_states import FREE, NO_STATE, KeptStates, Mark, StateCosts
from kernel.sessions.logged_turns import LoggedTurns, logged_turn
from kernel.state_image import StateImage
from kernel.turn import TurnRequest
from ownership import (
    ZEROS,
    Base,
    BaseName,
    BatchOwned,
    Consume,
    CustodianId,
    LedgerView,
    Owns,
    SessionOwned,
    SessionPort,
)

__all__ = ["LastTurn", "SessionState"]


@attrs.frozen
class LastTurn:
    """The turn that ended last, as far as a late interrupt needs it."""

    id: TurnId
    log_before: int
    """Length of the log before the turn."""
    input_len: int
    kept: int
    receipt: Receipt
    """Tells how many tokens its caller has received, which may be after it has ended."""


class SessionState:
    """Token log and committed states of one session.

    Attributes:
        log: token ids.
        states: what is kept of it: the committed state, the automatic checkpoint, the marks.
        inherited: the state of its parent that a fork starts from while it has none of its own;
            only a name, so the parent may give it up, replace or close it.
        absorbed: position of the last committed state, given up or not: what a turn absorbs again
            below it is recomputation.
        turn_starts: length of the log at the beginning of each turn that generated.
        logged: all turns of the log, as a store or a file keeps them.
        held: a finished turn's claim while its tokens are on their way to the store.
        last: the turn that ended last, until another begins; a late interrupt may cut it.
        conversation: which part of the log is which messages; ``None`` before the first ones.
        cache_miss: why the last turn in the log found nothing in the prefix cache.
        slides: at its limit the oldest positions of attention layers are dropped; else it ends.
        is_woken: it was made of what was kept of it, and has had no state in memory since.
        cache_salt: under which its turns find prefixes in the cache, and leave them there.
    """

    held: Owns[BatchOwned | None]

    __slots__ = (
        "_changes",
        "_image",
        "_port",
        "_shelf",
        "_view",
        "absorbed",
        "cache_miss",
        "cache_salt",
        "conversation",
        "held",
        "inherited",
        "is_woken",
        "last",
        "log",
        "logged",
        "slides",
        "states",
        "turn_starts",
    )

    def __init__(
        self,
        holder: CustodianId,
        port: SessionPort,
        view: LedgerView,
        costs: StateCosts = FREE,
        shelf: ImageShelf | None = None,
    ) -> None:
        self._port = port
        self._view = view
        self.states = KeptStates(holder, port, view, costs)
        self.log: array[int] = array("I")
        self.turn_starts: array[int] = array("I")
        self.logged = LoggedTurns()
        self.held = None
        self._image: StateImage | None = None
        self._shelf = ImageShelf() if shelf is None else shelf
        self.inherited: BaseName | None = None
        self._changes = 0
        self.absorbed = 0
        self.last: LastTurn | None = None
        self.conversation: Conversation | None = None
        self.slides = False
        self.is_woken = False
        self.cache_miss: CacheMiss | None = None
        self.cache_salt = ""

    @property
    def state(self) -> SessionOwned | None:
        """The committed state; ``None``: the session is down to its log, or to its marks."""
        version = self.states.current
        return None if version is NO_STATE else self.states.kept.get(version)

    @property
    def image(self) -> StateImage | None:
        """A state outside of the pools that the next turn may start from."""
        return self._image

    def keep_image(self, image: StateImage | None) -> bool:
        """Keep an image in place of the one there was; ``None``: keep none.

        Returns:
            False: there is no room for it, and none is kept.
        """
        before, self._image = self._image, None
        if before is not None:
            self._shelf.let_go(before)
        if image is not None:
            if not self._shelf.keep(image):
                return False
            self._image = image
        return True

    @property
    def checkpoint(self) -> SessionOwned | None:
        """What the last turn started from, kept for a late interrupt; the first to go."""
        version = self.states.before
        return None if version is NO_STATE else self.states.kept.get(version)

    @property
    def position(self) -> int:
        """Tokens that the committed state has absorbed; 0 when there is none."""
        return self.states.position(self.states.current)

    @property
    def version(self) -> int:
        """Changes of committed state: commits, fallbacks and give-ups; never of its place."""
        return self._changes

    @property
    def base(self) -> Base:
        """What the next turn starts from."""
        start = self.states.start
        if start is not NO_STATE:
            return self.states.name_of(start)
        if self.inherited is not None and self._view.find_base(self.inherited) is not None:
            return self.inherited
        return ZEROS

    @property
    def base_position(self) -> int:
        """Tokens that the base of the next turn has absorbed."""
        start = self.states.start
        if start is NO_STATE and self.inherited is not None:
            parent = self._view.find_base(self.inherited)
            return 0 if parent is None else parent.position
        return self.states.position(start)

    @property
    def turns(self) -> int:
        """Turns that generated, or were to, and are in the log."""
        return len(self.turn_starts)

    def inherit(self, parent: "SessionState") -> None:
        """Begin as a copy of another session's log, on top of the state that caches it.

        Marks stay with the parent: a state has one owner.
        """
        base = parent.base
        self.log = parent.log[:]
        self.turn_starts = parent.turn_starts[:]
        self.logged = parent.logged.copy()
        self.keep_image(parent.image)
        self.inherited = base if isinstance(base, BaseName) else None
        self.absorbed = parent.absorbed
        self.slides = parent.slides
        self.cache_salt = parent.cache_salt
        if parent.conversation is not None:
            self.conversation = parent.conversation.copy()

    def extend(self, tokens: Sequence[int]) -> None:
        """Append to the log. Its state lags behind now, which is legal."""
        self.log.extend(tokens)

    def extend_by_turn(self, request: TurnRequest, kept: int) -> None:
        """Append a turn's input and what is kept of its output; it can be cut back later."""
        tokens, composing = request.tokens, request.composing
        if composing is not None:
            if self.conversation is None:
                self.conversation = Conversation()
            self.conversation.add(composing, self.log)
        elif tokens and self.conversation is not None:
            self.conversation.add_text(len(self.log))
        if tokens or kept:
            self.logged.add(logged_turn(len(self.log), len(tokens), request.kind, composing))
            if request.kind == "generate":
                self.turn_starts.append(len(self.log))
        self.last = LastTurn(request.id, len(self.log), len(tokens), kept, request.output.receipt)
        self.cache_miss = request.output.cache_miss
        self.extend(tokens)
        self.extend(request.output.tokens[:kept])

    def late_cut(self, keep: int | None) -> tuple[int, int | None]:
        """Where the log would be cut to keep ``keep`` generated tokens of the last turn.

        Returns:
            How many are kept then, and the length of the log; ``None``: it stays as it is.

        Raises:
            ValidationError: its caller has not received so many, or there is no last turn.
        """
        last = self.last
        received = 0 if last is None else min(last.kept, last.receipt.tokens)
        if last is None or (keep is not None and not 0 <= keep <= received):
            raise keep_error(keep, received)
        if keep is None or keep == last.kept:
            return last.kept, None
        return keep, last.log_before + last.input_len + keep

    def cut_last_turn(self, keep: int | None) -> tuple[int, bool]:
        """Shorten the last turn to ``keep`` generated tokens; ``None`` leaves it as it is.

        Returns:
            How many are kept now, and whether anything was cut.

        Raises:
            ValidationError: as :meth:`late_cut`.
        """
        kept, length = self.late_cut(keep)
        if length is None or self.last is None:
            return kept, False
        self.cut(length)
        self.last = attrs.evolve(self.last, kept=kept)
        return kept, True

    def take(self, claim: Consume[BatchOwned], *, keep_checkpoint: bool) -> bool:
        """Commit a finished turn's claim if its position lies within the log, else roll it back.

        Returns:
            Whether the state was committed.
        """
        position = self._view.position(claim)
        if not 0 < position <= len(self.log) - 1:
            self._port.rollback(claim)
            return False
        self.states.commit(claim, keep=keep_checkpoint)
        self.states.bound_marks()
        self.keep_image(None)
        self.is_woken = False
        self._changes += 1
        self.absorbed = position
        return True

    def hold(self, claim: Consume[BatchOwned]) -> None:
        """Keep a finished turn's claim until its tokens are kept, or can't be."""
        before, self.held = self.held, claim
        if before is not None:
            self._port.rollback(before)

    def take_held(self, *, keep_checkpoint: bool) -> None:
        """As :meth:`take`, of the claim that is held; there may be none."""
        held, self.held = self.held, None
        if held is not None:
            self.take(held, keep_checkpoint=keep_checkpoint)

    def drop_held(self) -> None:
        """Give the claim back that is held, if there is one."""
        held, self.held = self.held, None
        if held is not None:
            self._port.rollback(held)

    def move(self, base: BaseName, claim: Consume[BatchOwned]) -> bool:
        """Take the unchanged copy of a state in another place for it; its name stays.

        Returns:
            False: the state is gone, and the copy was rolled back.
        """
        return self.states.move(base.version, claim)

    def roll_back(self, claim: Consume[BatchOwned]) -> None:
        """Give a claim back that nobody wants any more."""
        self._port.rollback(claim)

    def cut(self, length: int) -> None:
        """Shorten the log; a state beyond it gives way to the nearest before, or to nothing."""
        del self.log[length:]
        self.logged.cut(length)
        while self.turn_starts and self.turn_starts[-1] >= length:
            self.turn_starts.pop()
        if self.image is not None and self.image.position > length - 1:
            self.keep_image(None)
        self.absorbed = min(self.absorbed, length)
        if self.conversation is not None:
            self.conversation.cut(length)
        if self.inherited is not None:
            parent = self._view.find_base(self.inherited)
            if parent is None or parent.position > length - 1:
                self.inherited = None
        if self.states.cut(length):
            self._changes += 1
            self.absorbed = self.base_position
        self.states.bound_marks()

    def rewind(self, turns: int) -> None:
        """Forget everything from the beginning of turn number ``turns``, counted from 0, on."""
        if turns < self.turns:
            self._go_back(self.turn_starts[turns], turns)

    def mark(self, name: str) -> None:
        """Name the place where the log ends; the state that caches it is kept from here on."""
        mark = Mark(len(self.log), self.turns, self.absorbed, self.states.start)
        self.states.set_mark(name, mark)

    def restore(self, name: str) -> None:
        """Go back to a mark, which stays; later ones go with the log that they stand on."""
        mark = self.states.marks[name]
        self._go_back(mark.length, mark.turns)
        self.absorbed = max(self.absorbed, mark.absorbed)

    def drop_mark(self, name: str) -> None:
        """Forget a mark, and its state if nothing else names it."""
        self.states.drop_mark(name)

    def _go_back(self, length: int, turns: int) -> None:
        self.last = None
        del self.turn_starts[turns:]
        self.cut(length)

    def drop_checkpoint(self) -> bool:
        """Close the automatic checkpoint, if there is one that no mark names."""
        return self.states.drop_before()

    def give_up(self, base: BaseName) -> bool:
        """Close the named state; the token log stays. False when it is no longer here."""
        is_committed = base.version == self.states.current
        if not self.states.give_up(base.version):
            return False
        self._changes += is_committed
        return True

    def close(self) -> None:
        """Close all that the session holds."""
        self.drop_held()
        self.keep_image(None)
        self.states.close()


def keep_error(keep: int | None, received: int) -> ValidationError:
    """Say how many tokens an interrupt may keep."""
    return ValidationError(
        parameter="keep",
        value=keep,
        why=f"{received} generated tokens were received; keep 0 to {received} of them, or None",
    )
