"""Results: the shorthands agree with what they stand for."""

import pickle

from kernel.outputs import CompletionOutput, Delta, RequestOutput, Timings, Usage


def result() -> RequestOutput:
    output = CompletionOutput(text="ab", token_ids=(1, 2), finish_reason="stop", stop_reason="END")
    usage = Usage(prompt_tokens=7, completion_tokens=2, cached_tokens=5)
    return RequestOutput(
        request_id="r", session_id="s", outputs=(output,), usage=usage, timings=Timings(ttft_s=0.1)
    )


def test_shorthands_read_the_first_output() -> None:
    """There is one output a request; code written for vLLM finds it in the list as well."""
    got = result()

    assert (got.text, got.token_ids) == (got.outputs[0].text, got.outputs[0].token_ids)
    assert (got.finish_reason, got.stop_reason) == ("stop", "END")


def test_usage_adds_up() -> None:
    """total_tokens is what OpenAI's usage calls so."""
    got = result()

    assert got.usage.total_tokens == 9
    assert got.num_cached_tokens == 5


def test_results_are_values() -> None:
    """Equal by content, and fit to be sent to another process."""
    assert pickle.loads(pickle.dumps(result())) == result()
    assert Delta("a", (1,)) == Delta("a", (1,), None)
