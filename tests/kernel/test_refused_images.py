"""A state from elsewhere that the device refuses costs its turn the state, and nothing else."""

import attrs
import pytest

from kernel.ids import SessionId
from kernel.params import SamplingParams
from kernel.state_image import ImageArray, StateImage
from tests.kernel.loopless import Loopless, error_of, tokens_of

FOREIGN = StateImage(3, {"of another model": ImageArray("F64", (1, 1), bytes(8))})


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_refused_state_is_computed_again_from_the_log(interrupted: bool) -> None:
    """What the device could not load is never committed, and no token is drawn from it."""
    origin, world = Loopless.open(), Loopless.open()
    session = origin.session()
    origin.finish(origin.start(session, [1, 2, 3, 4]))
    record = session.identity.record()
    again = world.core.bring_back(record, image=FOREIGN, session_id=SessionId("again"))
    params = SamplingParams(max_tokens=3, temperature=0.0)

    expected, request = origin.start(session, [9], params), world.start(again, [9], params)
    origin.finish(expected)
    if interrupted:
        world.interrupt(again, None, request)
    world.finish(request)

    assert error_of(request) is None
    assert tokens_of(request) == ([] if interrupted else tokens_of(expected))
    assert again.state.image is None or interrupted
    assert attrs.asdict(world.core.ledger.audit())["problems"] == ()
    assert not world.device.poison_reads


def test_what_was_never_computed_is_not_computed_again() -> None:
    """Of a refused state only the positions that it stood for count as recomputed."""
    origin, world = Loopless.open(), Loopless.open()
    session = origin.session()
    origin.finish(origin.start(session, [1, 2, 3, 4]))
    record = session.identity.record()
    again = world.core.bring_back(record, image=FOREIGN, session_id=SessionId("again"))
    request = world.start(again, [9, 8, 7, 6], SamplingParams(max_tokens=3, temperature=0.0))
    world.finish(request)

    output = request.output
    assert (output.cached_tokens, output.recomputed_tokens) == (0, FOREIGN.position)
    assert world.core.counters.recomputed_tokens == FOREIGN.position
