"""The canonical form: what is alike is one state, and what is not is never taken for one."""

from typing import get_args

import attrs
import pytest

from kernel.config import EngineConfig
from kernel.flight import Flight
from kernel.ids import STORE, SessionId
from kernel.messages import (
    Down,
    ForgetIdle,
    PoolMessage,
    SchedulerMessage,
    SessionMessage,
    StoreMessage,
)
from kernel.prefixes.cache_use import CacheUse
from kernel.scheduling.parking import TransferFlight
from kernel.sessions.active_turn import ActiveTurn
from kernel.sessions.archive import Change
from kernel.sessions.state import LastTurn
from kernel.sessions.store_business import Change as StoreChange
from kernel.sessions.store_business import Removal, Snapshot
from kernel.testing.explorer import Event, replay
from kernel.testing.explorer.canonical import canonical, digest
from kernel.testing.explorer.choices import progress
from kernel.testing.explorer.forms import FIELDS_WITH_A_FORM, Names, field, message_form
from kernel.testing.explorer.large_worlds import LARGE
from kernel.testing.explorer.stage import Stage
from kernel.testing.explorer.world import Conversation, Turn, World
from kernel.testing.explorer.worlds import CI
from kernel.turn import OpenTurn
from ownership.claims import ClaimRecord
from tests.explorer.small_worlds import TWO_TURNS, two_sessions

A, B = Event("start", "a"), Event("start", "b")
TO_A, TO_B = Event("deliver", "session:a"), Event("deliver", "session:b")


def test_the_order_of_what_does_not_meet_makes_no_difference() -> None:
    """Two callers post to two mailboxes: one state, whoever was first."""
    world = two_sessions(same=())

    assert digest(replay(world, [A, B])) == digest(replay(world, [B, A]))


def test_the_order_of_what_does_meet_makes_a_difference() -> None:
    """Two submits in one mailbox: who comes first is senior."""
    world = two_sessions(same=())

    first = replay(world, [A, B, TO_A, TO_B])
    second = replay(world, [A, B, TO_B, TO_A])

    assert digest(first) != digest(second)


def test_sessions_that_are_alike_are_one_state_under_each_others_name() -> None:
    """Only a world says that they are alike, and only then they are."""
    alike, apart = two_sessions(), two_sessions(same=())

    assert digest(replay(alike, [A, TO_A])) == digest(replay(alike, [B, TO_B]))
    assert digest(replay(apart, [A, TO_A])) != digest(replay(apart, [B, TO_B]))


def test_which_slot_a_claim_has_makes_no_difference() -> None:
    """Slots are numbered as they are met: the same two claims the other way round are one state."""
    world = two_sessions(same=())
    scheduler = Event("deliver", "scheduler")
    stage = replay(world, [A, TO_A, B, TO_B, scheduler, scheduler, scheduler])
    book = field(stage.core.ledger, "_book")
    one, other = book.claims.values()
    before = digest(stage)

    one.slot, other.slot = other.slot, one.slot

    assert {one.slot, other.slot} == {0, 1}
    assert digest(stage) == before


def test_a_turn_later_is_another_state() -> None:
    """Nothing that has happened to a session is forgotten while it lives."""
    stage = Stage(TWO_TURNS)
    seen: set[bytes] = set()
    while events := progress(stage):
        assert digest(stage) not in seen
        seen.add(digest(stage))
        stage.perform(events[0])

    assert len(seen) > 20


def test_budgets_that_were_spent_are_part_of_a_state() -> None:
    """A cancel that is still possible is a possible future."""
    world = two_sessions(moves=("cancel",), same=())
    stage = replay(world, [A])
    before = canonical(stage)
    stage.moves_made += 1

    assert canonical(stage) != before


KEPT_AND_CACHED = EngineConfig(
    max_num_seqs=2,
    num_slots=6,
    page_size=1,
    max_num_batched_tokens=2,
    session_store="in memory",
    enable_prefix_caching=True,
)

EVERY_WORLD: dict[str, World] = {world.name: world for world in (*CI, *LARGE)}

KNOWN: dict[type, set[str]] = {
    OpenTurn: {
        # read
        *("id", "history_len", "new", "input_len", "base", "absorb_first", "rank", "state"),
        *("position", "covered", "has_landed", "in_flight", "cancelled", "interrupt_keep"),
        *("interrupt_reason", "was_admitted", "first_page", "image", "is_loading", "is_sliding"),
        *("fallbacks", "is_behind"),
        # follow from the conversation
        *("session", "history", "kind", "max_tokens", "min_tokens", "stop_ids", "temperature"),
        *("top_k", "top_p", "key", "priority", "tenant", "deadline_s", "rules"),
        *("prompt_logprobs", "window"),
        "cache",  # by a form of its own
        # told to callers, or counted
        *("output", "absorbed_before", "has_computed"),
    },
    ClaimRecord: {
        *("number", "custodian", "slot", "exclusive", "position", "content", "tip", "base"),
        *("origin", "kind", "pins", "step", "name", "handle", "pool", "first_page"),
        # follow from the others
        *("page_table", "covered", "next_full", "turn", "holder"),
        # for messages of errors
        *("generation", "fate", "trail"),
    },
    ActiveTurn: {
        *("request", "scheduler_incarnation", "is_interrupted", "keep", "interrupts", "decided"),
    },
    CacheUse: {
        *("salt", "named", "keeps_end", "is_planned", "cuts", "shares"),
        "_key",  # follows from the turn's tokens
    },
    Change: {
        *("number", "incarnation", "length", "shortest", "keep", "lose"),
        "asker",  # the caller of an interrupt, whose reply is in the caller's form
    },
    StoreChange: {"asker", "number"},
    Snapshot: {
        *("asker", "position", "number"),
        "nbytes",  # follows from the position
    },
    Removal: {
        "session_id",
        "reply",  # the caller's, and in its form
    },
    LastTurn: {"id", "log_before", "input_len", "kept", "receipt"},
    # With the images of its turns, ``advances`` follows from what they absorb.
    Flight: {"lease", "turns", "absorbs", "advances", "pool_incarnation", "step", "launched_at"},
    # The last two are for figures.
    TransferFlight: {"lease", "errands", "pool_incarnation", "launched_at", "steps_before"},
}
"""What each class that changes consists of. A new field has to be read, or be left out with a
reason: add it here when ``forms.py`` or ``canonical.py`` takes note of it."""


@pytest.mark.parametrize("kind", KNOWN, ids=lambda kind: kind.__name__)
def test_the_form_knows_every_field(kind: type) -> None:
    """A field that is not read could make two different states one."""
    assert {field.name for field in attrs.fields(kind)} == KNOWN[kind]


ATTRIBUTES: dict[str, set[str]] = {
    "session": {
        *("name", "system", "mail_bound", "incarnation", "mailbox", "session_id", "state"),
        *("is_one_shot", "is_closed", "is_close_posted"),
        *("_here", "_home", "_deadlines", "_ends", "_starts"),
        *("identity", "seat"),  # how it was opened; who looks at it
        *("archive", "removed", "_rest", "_tiers"),
    },
    "archive": {
        *("change", "deferred", "snapshots", "is_opened", "_kept_len", "_has_kept_facts"),
        *("_kept_salt", "_is_in_doubt"),
        "_numbers",  # no two answers have the same; which they are says nothing
        "_doing",  # none between two handlers
        *("_session_id", "_holder", "_system", "_kept", "_facts"),
    },
    "snapshots": {
        *("position", "_bytes", "_offered", "_fetches", "_parent"),
        *("_session_id", "_holder", "_system", "_probe", "_numbers"),
    },
    "rest": {"_is_leaving", "_is_held_up", "_session", "_residents", "_archive", "_tiers"},
    "store": {
        *("name", "system", "mail_bound", "incarnation", "mailbox", "_worker", "_rules"),
        *("_new_job", "_asks", "_on_record", "_here"),
        *("_open", "_num_asks", "_deadlines", "_timer", "_bytes_out", "_bytes_in"),
        *("_images", "_fetches", "_reading"),
    },
    "stored": {
        *("worker", "residents", "waking", "dormant", "_asks", "_wanted"),
        *("_dispatcher", "_make", "_rules", "_jobs"),
        *("_births", "life"),  # names only
    },
    "waking": {
        *("_queue", "_reading", "_outdated"),
        *("_residents", "_read", "_is_stuck", "_on_no_store"),
    },
    "dormant": {
        "_seats",
        "_entries",  # told to callers
    },
    "residents": {
        *("_resting", "_asked", "_count", "_awaited"),
        *("_max_resident", "_max_sessions", "_ask", "on_stir"),
    },
    "cache": {
        *("states", "books", "tree", "_nodes", "_ghosts", "_is_closed"),
        *("_port", "_view", "_counters", "_least"),
    },
    "ends": {
        *("active", "last_used_at", "state", "_tiers", "_archive", "_home"),
        *("_session_id", "_name", "_system", "_deadlines", "_is_one_shot"),
        "host",  # follows from whether the session has ended
    },
    "starts": {
        *("waiting", "_starts_waiting", "state", "_ends", "_tiers", "_archive", "_home"),
        *("_session_id", "_name", "_system", "_deadlines", "_is_one_shot"),
        "host",  # follows from whether the session has ended
    },
    "state": {
        *("_port", "_view", "log", "states", "inherited", "_changes", "absorbed", "last"),
        "is_woken",
        "conversation",  # none: the explorer's callers give token ids
        "turn_starts",  # as many as there were turns; the explorer's callers never go back
        *("logged", "cache_salt", "held", "_image"),
        "_shelf",  # bytes of the images, which have forms of their own
        "slides",  # as it was opened
        "cache_miss",  # told to callers
    },
    "kept states": {
        *("current", "before", "kept"),
        "marks",  # none: the explorer's callers never set one
        *("_costs", "_holder", "_port", "_view"),
    },
    "tiers": {
        *("_holder", "_system", "_state", "_archive", "_reads", "_fetched"),
        # none: the explorer's callers export nothing
        *("_tickets", "_exports", "_export_fetches"),
    },
    "admission": {
        *("_system", "_work", "_view", "_limits", "_policy", "_prefixes", "room"),
    },
    "scheduler": {
        *("name", "system", "mail_bound", "incarnation", "mailbox", "_work", "_admission"),
        *("_limits", "_policy", "_counters", "_new_step", "_pool", "flight", "_tick_posted"),
        *("_arrivals", "_view", "parking"),
        "_rows",  # nothing of its own
    },
    "workload": {
        *("claims", "roster", "grows", "port", "door", "counters", "_system", "parking"),
        "prefixes",  # its cache, and rules that don't change
        "is_short",
    },
    "parking": {
        *("copies", "parked", "flights", "asked", "_errands", "_next", "_system", "_port"),
        *("_view", "_counters", "_new_step", "_pool"),
    },
    "roster": {"waiting", "running", "committing", "parking", "_by_id"},
    "room": {"_view", "_roster", "_max_rows", "_page_size", "asked", "_cache"},
    "pool": {
        *("name", "system", "mail_bound", "incarnation", "mailbox", "_ledger", "_view"),
        *("worker", "_quarantine", "_step_timeout_s", "_on_step", "_on_unwanted", "_here"),
        *("_scheduler", "leases", "_deadlines"),
    },
    "quarantine": {"_ledger", "_leases", "_abandoned"},
    "recovery": {
        *("quarantine", "restarts", "_dispatcher", "_ledger", "_port", "_fail", "_stalls"),
    },
    "door": {
        *("_max_reqs", "_max_tokens", "_tokens_by_turn", "_tokens", "closed_by", "failure"),
    },
}


@pytest.mark.parametrize("part", ATTRIBUTES)
def test_the_form_knows_every_attribute(part: str) -> None:
    """The same, of the classes that are no values."""
    stage = Stage(attrs.evolve(TWO_TURNS, config=KEPT_AND_CACHED))
    core = stage.core
    scheduler, stored = core.scheduler, core.stored
    actor = core.sessions[SessionId("a")]
    assert scheduler is not None
    assert stored is not None
    assert actor.archive is not None
    parts: dict[str, object] = {
        "session": actor,
        "archive": actor.archive,
        "snapshots": actor.archive.snapshots,
        "rest": field(actor, "_rest"),
        "store": core.dispatcher.actor(STORE),
        "stored": stored,
        "waking": stored.waking,
        "dormant": stored.dormant,
        "residents": stored.residents,
        "cache": scheduler.cache,
        "state": actor.state,
        "kept states": actor.state.states,
        "tiers": field(actor, "_tiers"),
        "ends": field(actor, "_ends"),
        "starts": field(actor, "_starts"),
        "admission": field(scheduler, "_admission"),
        "scheduler": scheduler,
        "workload": field(scheduler, "_work"),
        "parking": scheduler.parking,
        "roster": scheduler.roster,
        "room": field(scheduler, "_admission").room,
        "pool": core.recovery.pool,
        "quarantine": core.recovery.quarantine,
        "recovery": core.recovery,
        "door": core.door,
    }

    assert _attributes_of(parts[part]) == ATTRIBUTES[part]


def _attributes_of(thing: object) -> set[str]:
    slots: tuple[str, ...] = getattr(type(thing), "__slots__", ())
    return set(slots) if slots else set(vars(thing))


@pytest.mark.parametrize("world", EVERY_WORLD.values(), ids=list(EVERY_WORLD))
def test_what_is_left_out_as_absent_is_absent_in_every_world(world: World) -> None:
    """Nobody slides: what that keeps has no form. And a tie of names would tell sessions apart."""
    assert world.config.on_limit == "refuse"
    assert world.config.session_store is None or not world.same


def test_what_a_store_was_asked_for_makes_a_difference() -> None:
    """A job that is under way is a future: it may be done, or not."""
    world = attrs.evolve(TWO_TURNS, config=KEPT_AND_CACHED)
    stage = Stage(world)
    while (event := progress(stage)[0]).kind != "store":
        stage.perform(event)
    before = canonical(stage)
    assert stage.store is not None

    held = stage.store.jobs.pop()

    assert canonical(stage) != before
    stage.store.jobs.append(held)
    assert canonical(stage) == before


def test_who_was_used_last_makes_a_difference() -> None:
    """Of two cached states the one used longest ago goes first."""
    asks = tuple(
        Conversation(name, (Turn((first, 2, 3)),), is_one_shot=True)
        for name, first in (("o", 1), ("p", 4))
    )
    stage = Stage(attrs.evolve(TWO_TURNS, conversations=asks, config=KEPT_AND_CACHED))
    while events := progress(stage):
        stage.perform(events[0])
    assert stage.core.scheduler is not None
    cache = stage.core.scheduler.cache
    assert cache is not None
    assert len(cache.states) > 1
    before = canonical(stage)

    oldest = next(iter(cache.states))
    cache.states[oldest] = cache.states.pop(oldest)

    assert canonical(stage) != before


def test_every_field_of_a_message_has_a_form() -> None:
    """One that has none would stop the exploration, in the middle of a long run."""
    unions = (SessionMessage, SchedulerMessage, PoolMessage, StoreMessage)
    kinds = {kind for union in unions for kind in get_args(union)}
    fields = {one.name for kind in kinds - {Down, ForgetIdle} for one in attrs.fields(kind)}

    assert fields <= FIELDS_WITH_A_FORM


def test_a_foreign_message_is_refused() -> None:
    """To leave it out in silence would merge what differs by it."""
    names = Names(Stage(TWO_TURNS).core, ["a"])

    with pytest.raises(TypeError, match="has no canonical form"):
        message_form(names, None, "hello")
