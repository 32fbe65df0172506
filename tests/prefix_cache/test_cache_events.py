"""The log alone proves that what the cache took came back."""

import io
import json

from adapters.logs import event_logger
from adapters.trace_audit import audit_lines
from kernel.probe import EventProbe
from tests.museum.acts import finish, one_shot
from tests.prefix_cache.test_publishing import open_cached
from tests.scenarios.inputs import prompt


def test_the_log_of_an_engine_with_a_cache_is_conserved() -> None:
    """Hits, branches, evictions for want of room, and a drain while a copy is under way."""
    file = io.StringIO()
    probe = EventProbe(event_logger(file), engine="engine", clock=lambda: 0.0)
    world = open_cached(num_slots=6, num_pages=60, probe=probe)
    for number in range(6):
        asked = prompt(30) if number % 2 else [*prompt(20), *prompt(9, number)]
        finish(world, one_shot(world, f"r{number}", asked, 5))
    last = one_shot(world, "last", prompt(30), 2)
    world.core.clear_cache()
    world.run()
    finish(world, last)
    world.core.stop(join_timeout_s=0)

    lines = file.getvalue().splitlines()
    (audit,) = audit_lines(lines).engines
    assert audit.problems == ()
    assert audit.closed
    events = [json.loads(line) for line in lines]
    names = {event["event"] for event in events}
    assert {"claim.admitted", "claim.evicted", "claim.drained", "claim.drain_ended"} <= names
    ends = [event["cache_miss"] for event in events if event["event"] == "turn.ended"]
    assert ends[0] == "cold"
    assert ends[-1] is None
