"""Bugs of caches and stores that the explorer's worlds with a cache or a store are there for."""

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_EVENTS = "tests/prefix_cache/test_cache_events.py::test_"
_RACES = "tests/durable/test_races.py::test_"
_KEEPING = "tests/durable/test_durable_turns.py::test_"
_DORMANT = "tests/durable/test_dormant.py::test_"
_STORE_ACTOR = "tests/durable/test_store_actor.py::test_"

MUTANTS: list[Mutant] = [
    Mutant(
        "left-under-no-salt",
        "A state is left under the salt of the turn that has computed it.",
        "kernel/prefixes/turn_prefixes.py",
        "cache.admit(claim, use.salt,",
        'cache.admit(claim, "",',
        rule="nobody starts from another's state",
    ),
    Mutant(
        "clear-passes-over-pinned",
        "A cache that is emptied lets go of pinned states as well; they drain.",
        "kernel/prefixes/cache.py",
        "        for number in list(self.states):\n"
        "            self.evict(self.books[number].name)\n",
        "        for name in list(self.evictable()):\n            self.evict(name)\n",
        rule="4.2 a base drains",
        near=(_EVENTS + "the_log_of_an_engine_with_a_cache_is_conserved",),
    ),
    Mutant(
        "doubt-not-cut",
        "What a store may have done all the same is cut off its log.",
        "kernel/sessions/archive.py",
        "            yield CutLog(self._session_id, self._kept_len)\n",
        "            pass\n",
        rule="the log on the disk is the session's",
        near=(_RACES + "what_the_store_has_passed_on_before_it_died_is_undone",),
    ),
    Mutant(
        "started-while-the-log-is-cut",
        "A turn that comes while the log is being cut starts after that.",
        "kernel/sessions/turn_starts.py",
        "        if active is None and self._is_saving:\n            self.waiting.add(request)",
        "        if False:\n            self.waiting.add(request)",
        rule="one change of a log at a time",
        near=(_KEEPING + "a_turn_that_comes_while_the_log_is_cut_waits_for_that",),
    ),
    Mutant(
        "cancelled-fetch-stays-counted",
        "A turn that ends while its snapshot is read is no longer counted at the door.",
        "kernel/sessions/turn_ends.py",
        "        if self._tiers.forget_fetch(turn):\n            self._home.door.leave(turn)\n",
        "        self._tiers.forget_fetch(turn)\n",
        rule="bounds are counted at the door",
        near=(_DORMANT + "a_turn_that_is_cancelled_while_its_state_is_read_leaves_nothing",),
    ),
    Mutant(
        "dead-store-wakes-nobody",
        "Whoever wakes a session hears of the death of the store.",
        "kernel/sessions/store_actor.py",
        "            if isinstance(business, ReadStored):\n"
        "                self._on_record(business.session_id, fault)\n"
        "            elif isinstance(business, Removal):\n",
        "            if isinstance(business, Removal):\n",
        rule="6 whoever waits is answered",
        near=(_STORE_ACTOR + "requests_that_were_never_handled_are_answered_by_a_death",),
    ),
]
