"""The rules without which small models of the protocol deadlocked, leaked or lost a turn.

The design marks each with ◆. Here each has a name, for the mutants that undo it, and says what goes
wrong without it. A rule about a feature that is not built yet waits for it, by name.
"""

from typing import Final

import attrs

__all__ = ["RULES", "Rule"]


@attrs.frozen
class Rule:
    """One marked rule.

    Attributes:
        id: the section of the design, then a name.
        says: what must hold.
        without: what happened in a model that didn't keep it.
        pending: the feature that brings it, if that isn't built yet.
    """

    id: str
    says: str
    without: str
    pending: str = ""


_OWNERSHIP = (
    Rule(
        "4.1 verbs are calls",
        "A verb is a synchronous call into the ledger inside its actor's handler, whole or not at "
        "all. Messages carry handles, never verbs.",
        "A close that is under way crosses a commit that is under way: whichever comes second "
        "finds the other's result, and one state leaks.",
    ),
    Rule(
        "4.1 anyone gives back",
        "Each of the three ports has `rollback(BatchOwned)`.",
        "Whoever receives a claim that it can't use has to send it on, to somebody who may be "
        "gone by then. With it, receiving a claim is always enough to end it.",
    ),
    Rule(
        "4.2 landing freezes",
        "A landing turns the pages that it filled into a run, and no step writes them again.",
        "A page that a session shares with its next turn is still written by somebody.",
    ),
    Rule(
        "4.2 runs in one place",
        "Parking copies a chain of runs into host runs and drops the device count; a parent that "
        "is there already is shared.",
        "A chain half on the device and half in host memory has counts on both sides, and neither "
        "reaches zero.",
    ),
    Rule(
        "4.2 drain",
        "A base that is closed, replaced or evicted while a copy out of it is under way loses its "
        "owner and its name at once and its memory at the last unpin.",
        "Either the close waits for the copy, and a session that can't be closed is a deadlock; or "
        "the slot is free, and the copy reads what its next owner writes.",
    ),
    Rule(
        "4.2 pinned is not launched",
        "A working claim that somebody copies out of is not launched until that copy has landed.",
        "The step moves the claim on while it is copied, and the copy is of no position at all.",
    ),
    Rule(
        "4.2 lease never reclaimed",
        "A death reclaims what its actor held, by type, and never what a lease holds.",
        "The device still writes into slots that the next turn already has.",
    ),
)

_TURNS = (
    Rule(
        "5 queued holds nothing",
        "A turn that waits holds no handle and pins nothing. Looking its base up, pinning it and "
        "reserving room is one synchronous step at admission.",
        "Sessions whose turns wait keep the memory that these turns wait for: a deadlock as soon "
        "as all of them do.",
    ),
    Rule(
        "5 version counts states",
        "A turn names its base by session and version. A version counts commits, fallbacks and "
        "give-ups, and never a change of place.",
        "A turn starts from a state that its session has replaced, and its tokens continue a "
        "history that no longer is.",
    ),
    Rule(
        "5 own host claim",
        "A preempted turn may wait with one claim in host memory and with nothing on the device; "
        "a cancel during that copy gives both back.",
        "A cancel between the copy and its landing gives back one handle of two.",
    ),
    Rule(
        "5 late is rolled back",
        "A cancelled or closed turn is forgotten at once, and what arrives later under its id is "
        "rolled back.",
        "Either the session waits for a step that nobody wants, or the claim that comes after is "
        "dropped and leaks, or it is committed as the next turn's.",
    ),
    Rule(
        "5 smaller keep",
        "A session keeps the smaller of what a finished turn says and what it accepted in an "
        "interrupt, and judges the claim's position by that.",
        "The state has absorbed tokens that the caller was told are not part of the history.",
    ),
    Rule(
        "5 too late",
        "A late interrupt names its turn, and is refused once its session has accepted another.",
        "It cuts the next turn instead.",
    ),
)

_KERNEL = (
    Rule(
        "6 overdue is a death",
        "A step past its deadline is the death of the GPU pool: its turns fail at once, its claims "
        "stand in quarantine until the old thread is done.",
        "Either one hanging kernel hangs every caller, or memory is given back while the old "
        "thread still writes to it.",
    ),
    Rule(
        "6 quarantine is not asked",
        "A base that a hanging step pins is never asked for.",
        "Its session gives it up for nothing: it only drains, and the turn that asked waits for a "
        "copy that may never end.",
    ),
    Rule(
        "6 death is told",
        "Each actor with open business with a dead one gets `Down` of that incarnation, ends that "
        "business as failed, and only then sees the successor.",
        "A session waits for a turn that the new scheduler has never heard of.",
    ),
    Rule(
        "6 whoever waits is answered",
        "An undelivered request is answered as failed, not only swept away; the answer goes to "
        "whoever waits. A fork submits its own request, and names its parent's state in it.",
        "A caller waits for ever for mail that died with a mailbox.",
    ),
    Rule(
        "6 down wakes the scheduler",
        "A session that has handled a scheduler's `Down` wakes the new scheduler.",
        "The new scheduler looked before that session came to rest, and nothing makes it look "
        "again.",
    ),
    Rule(
        "6 cancel beats interrupt",
        "A turn that was interrupted and is then cancelled before it landed is cancelled.",
        "The caller has left, and the history grows by what it was never given.",
    ),
)

_SCHEDULING = (
    Rule(
        "7 juniors only",
        "One rank orders admission, growth and victims, and a turn takes from its juniors only.",
        "Two turns preempt each other for ever.",
    ),
    Rule(
        "7 all moves together",
        "While a turn waits for room no junior is admitted or grown, and nothing is preempted "
        "unless all moves together make the room.",
        "A large turn starves behind small ones; or turns lose their work and nobody gains by it.",
    ),
    Rule(
        "7 copies have no rank",
        "A copy that the scheduler asked for is reserved at once or refused, and refused means the "
        "next tier.",
        "A copy that waits for room waits for the turn that waits for it.",
    ),
    Rule(
        "7 asks are answered once",
        "Every ask to give up a state is answered exactly once: moved, nothing, or closed.",
        "The scheduler counts on room that never comes, and asks nobody else.",
    ),
    Rule(
        "7 wake-up",
        "Every transition that makes a move legal (freed, drained, come to rest, landed) wakes the "
        "scheduler.",
        "The room is there, the turn waits, and nothing happens any more.",
    ),
)

RULES: Final = {rule.id: rule for rule in (*_OWNERSHIP, *_TURNS, *_KERNEL, *_SCHEDULING)}
"""By id, in the order of the design."""
