"""P15: one identity stands for two things."""

import pytest

from kernel import RequestExists
from tests.museum.exhibit import exhibit
from tests.scenarios.stage import greedy, open_stage, prompt


@exhibit("M056", pattern="P15", guard="admission rule", bug="two-requests-share-an-id")
@pytest.mark.parametrize("steps", [0, 2])
async def test_m056_a_request_id_in_use_is_refused(steps: int) -> None:
    """sgl-project/sglang#19035: state was kept by ids of the clients, and proxies repeat those.

    The second one is refused with a typed error, before the first has started and while it decodes;
    the first is not disturbed, and its id is free again when it has ended.
    """
    async with open_stage(num_slots=2, num_pages=40) as stage:
        async with stage.engine.stream(prompt(5), greedy(5), request_id="x") as first:
            await stage.step(steps)
            with pytest.raises(RequestExists, match="x"):
                async with stage.engine.stream(prompt(4, 1), greedy(3), request_id="x"):
                    pass
            stage.note([], await stage.finish(first))
        again = stage.engine.stream(prompt(4, 1), greedy(3), request_id="x")
        stage.note([], await stage.run(again))
        stage.assert_at_rest()
