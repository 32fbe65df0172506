"""Bugs in the tiers below memory: snapshots, images that are read back, sessions that are woken."""

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_ARCHIVE = "kernel/sessions/archive.py"
_SNAPSHOTS = "kernel/sessions/snapshots.py"
_TIERS = "kernel/sessions/tiers.py"
_STATE = "kernel/sessions/state.py"
_SHELF = "kernel/sessions/image_shelf.py"
_REST = "kernel/sessions/rest.py"
_SESSION = "kernel/sessions/session.py"
_STORED = "kernel/sessions/stored_sessions.py"
_WAKES = "kernel/sessions/wake_queue.py"

_DORMANT = "tests/durable/test_dormant.py::test_"
_SHELVES = "tests/durable/test_image_shelf.py::test_"
_FORKS = "tests/durable/test_forks_from_disk.py::test_"
_LEAVING = "tests/durable/test_leaving_changes.py::test_"
_RACES = "tests/durable/test_races.py::test_"
_BURSTS = "tests/durable/test_wake_bursts.py::test_"

MUTANTS: list[Mutant] = [
    Mutant(
        "image-of-a-cut-log",
        "A snapshot that lies beyond a cut is no snapshot any more.",
        _SNAPSHOTS,
        "        if self.reaches_beyond(length - 1):\n            self.position = None\n",
        "        if self.reaches_beyond(length - 1):\n",
        rule="position <= length - 1",
        near=(_DORMANT + "a_snapshot_goes_with_the_log_that_it_is_of",),
    ),
    Mutant(
        "brought-in-image-outlives-its-log",
        "An image that was brought in is of no use once the log below it was cut.",
        _STATE,
        "        if self.image is not None and self.image.position > length - 1:\n",
        "        if self.image is not None and self.image.position > length + 99:\n",
        rule="position <= length - 1",
        near=("tests/kernel/test_session_state.py::test_an_image_goes_with_the_log_that_it_is_of",),
    ),
    Mutant(
        "brought-in-images-without-bound",
        "Images of sessions that were brought in are bounded together.",
        _SHELF,
        "            if self.nbytes + image.nbytes > self.max_bytes:\n",
        "            if image.nbytes > self.max_bytes:\n",
        rule="every bound is kept",
        near=(_SHELVES + "an_image_without_room_is_left_to_the_log_and_that_is_told",),
    ),
    Mutant(
        "dead-sessions-image-stays",
        "A session that dies gives back the room of its image.",
        _SESSION,
        "        self.state.keep_image(None)\n",
        "",
        rule="what was dropped is nobody's",
        near=(_SHELVES + "a_fork_shares_its_parents_image_and_the_last_one_gives_its_room_back",),
    ),
    Mutant(
        "fork-from-another-history",
        "A fork starts from its parent's snapshot if that is of the fork's own log.",
        "kernel/sessions/store_business.py",
        "        if turn.tokens[: len(part)] != part:\n",
        "        if len(turn.tokens) < len(part):\n",
        rule="the log is the truth",
        near=(_FORKS + "a_parent_that_went_its_own_way_leaves_its_fork_the_log",),
    ),
    Mutant(
        "fork-computes-what-is-on-disk",
        "A fork of a session whose state is on the disk starts from there.",
        _SESSION,
        "            self.archive.snapshots.inherit(parent.archive.snapshots)\n",
        "            pass\n",
        rule="nothing is lost on the way down",
        near=(_FORKS + "a_fork_starts_from_the_snapshot_of_its_parent",),
    ),
    Mutant(
        "taken-and-unanswered-is-no-mail",
        "Callers who wait for a session count until they are answered.",
        _SESSION,
        "        return len(self.mailbox) + kept_back + self._tiers.num_exports + interrupts\n",
        "        return len(self.mailbox) + kept_back\n",
        rule="every bound is kept",
        near=("tests/durable/test_crowds.py",),
    ),
    Mutant(
        "exports-read-one-by-one",
        "However many export a session, its snapshot is read once.",
        _TIERS,
        "        if len(self._export_fetches) > 1:\n",
        "        if len(self._export_fetches) > 99:\n",
        rule="every bound is kept",
        near=("tests/durable/test_crowds.py",),
    ),
    Mutant(
        "lost-state-untold",
        "A state that can't be had from the disk is told in an event.",
        _SNAPSHOTS,
        "            self.tell_lost(fetch.position, fault)\n",
        "            pass\n",
        rule="a fall back is told",
        near=(_DORMANT + "a_snapshot_that_cannot_be_read_falls_back_to_the_log_and_says_so",),
    ),
    Mutant(
        "given-up-without-a-snapshot",
        "A state that has to go is kept on the disk first.",
        _TIERS,
        "        self.keep(base, image)\n        self._close(base)\n",
        "        self._close(base)\n",
        rule="nothing is lost on the way down",
        near=(_DORMANT + "a_state_that_is_given_up_is_kept_on_disk_first",),
    ),
    Mutant(
        "dead-schedulers-ask-is-answered",
        "An ask of a scheduler that died meanwhile is not answered to its successor.",
        _TIERS,
        "        if self._system.incarnation_of(SCHEDULER) != incarnation:\n",
        "        if self._system.incarnation_of(SCHEDULER) < incarnation:\n",
        rule="7 asks are answered once",
        near=(_RACES + "an_ask_of_a_scheduler_that_died_is_nobodys_any_more",),
    ),
    Mutant(
        "cancelled-fetch-keeps-its-room",
        "A turn that ends while its image is read gives the room of it back.",
        _TIERS,
        "        archive.snapshots.release(turn)\n        return is_waiting\n",
        "        return is_waiting\n",
        rule="a cancelled turn gives its memory back",
        near=(_DORMANT + "a_turn_that_is_cancelled_while_its_state_is_read_leaves_nothing",),
    ),
    Mutant(
        "dormant-without-its-state",
        "A session that goes dormant leaves its state on the disk.",
        _REST,
        "            self._tiers.to_disk(self._go)\n",
        "            self._go()\n",
        rule="nothing is lost on the way down",
        near=(_DORMANT + "a_session_that_is_woken_goes_on_with_its_state",),
    ),
    Mutant(
        "dormant-with-mail",
        "A session that was asked for something meanwhile stays.",
        _REST,
        "        if self._is_leaving and self.is_possible and not has_mail:\n",
        "        if self._is_leaving and self.is_possible:\n",
        rule="6 whoever waits is answered",
        near=(_RACES + "a_session_that_has_mail_does_not_go",),
    ),
    Mutant(
        "dormant-with-half-of-its-log",
        "A session goes dormant when all of its log is kept.",
        _ARCHIVE,
        "            and self._kept_len == len(self._kept.log)\n",
        "",
        rule="nothing is lost on the way down",
        near=(_LEAVING + "a_session_does_not_leave_between_a_change_on_the_disk_and_its_own_log",),
    ),
    Mutant(
        "woken-twice",
        "However many wake a session, it is woken once.",
        _WAKES,
        "        waiters = self._reading.get(session_id)\n        if waiters is None:\n",
        "        waiters = None\n        if waiters is None:\n",
        rule="one actor for each session",
        near=(_DORMANT + "however_many_wake_a_session_it_is_read_once",),
    ),
    Mutant(
        "woken-after-it-was-removed",
        "A session that is removed while it is woken is not there.",
        _WAKES,
        "        waiters = self._reading.pop(session_id, None)\n",
        "        waiters = None\n",
        rule="what was removed stays removed",
        near=(_RACES + "a_session_that_is_removed_while_it_is_woken_is_not_found",),
    ),
    Mutant(
        "gone-before-it-was-used",
        "A session that was woken for somebody stays until they have used it.",
        _STORED,
        "        if session_id in self._wanted:\n",
        "        if self.waking.is_reading(session_id):\n",
        rule="6 whoever waits is answered",
        near=(_RACES + "a_session_that_somebody_waits_for_is_not_asked_to_go",),
    ),
    Mutant(
        "last-come-is-woken-first",
        "Dormant sessions that wait for room are woken in the order in which they came.",
        _WAKES,
        "session_id = next(iter(self._queue))",
        "session_id = next(reversed(self._queue))",
        rule="first come, first served",
        near=(_BURSTS + "they_are_served_in_the_order_in_which_they_came",),
    ),
    Mutant(
        "nobody-goes-for-those-who-wait",
        "While dormant sessions wait for room, those at rest go, however few there are.",
        "kernel/sessions/residents.py",
        "most = min(self._max_resident, max(0, self._max_sessions - self._awaited))",
        "most = self._max_resident",
        rule="no deadlock when all residents are busy",
        near=(_BURSTS + "all_of_a_burst_are_served_however_little_the_room",),
    ),
    Mutant(
        "room-given-twice",
        "A session that is being read has its room already.",
        "kernel/sessions/registry.py",
        "self.count + taken >= self._max_sessions",
        "self.count >= self._max_sessions",
        rule="bounded sessions in memory",
        near=(_BURSTS + "a_new_session_does_not_take_the_room_of_one_that_is_being_read",),
    ),
    Mutant(
        "waits-without-hope",
        "Where no session in memory will ever go, nobody waits for that.",
        _WAKES,
        "        if is_hopeless and self._is_stuck():\n",
        "        if False:\n",
        rule="whoever waits is answered",
        near=(_BURSTS + "where_nobody_will_ever_go_a_turn_is_refused_and_does_not_hang",),
    ),
    Mutant(
        "closing-leaves-callers-of-the-dormant",
        "The end of the engine answers those who wait for a dormant session.",
        "kernel/engine/core.py",
        "            self.stored.waking.turn_away(self.door.closed_by)",
        "            pass",
        rule="whoever waits is answered",
        near=(_BURSTS + "closing_the_engine_answers_all_who_wait_at_once_and_once",),
    ),
    Mutant(
        "image-of-an-older-state-kept",
        "A state that was replaced while it was read is no snapshot of what came after it.",
        _TIERS,
        "if archive is not None and image is not None and base == self._state.base:",
        "if archive is not None and image is not None:",
        rule="position <= length - 1",
        near=("tests/durable/test_races.py", "tests/durable/test_dormant.py"),
    ),
    Mutant(
        "interrupt-during-a-fetch-is-lost",
        "A turn that is interrupted while its state is read ends then.",
        "kernel/sessions/turn_starts.py",
        "        if active.is_interrupted:\n            self._home.door.leave(turn.id)",
        "        if False:\n            self._home.door.leave(turn.id)",
        rule="whoever waits is answered",
        near=(_DORMANT + "a_turn_that_is_interrupted_while_its_state_is_read_ends_with_its_input",),
    ),
]
