"""The README's example runs as it stands, and the README says what a user has to know first."""

from functools import partial

import anyio
import pytest

from tests.docs.markdown import ROOT, blocks, run

README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.timeout(120)
def test_the_example_runs_as_it_stands(anyio_backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the first thing that anybody runs; on the bundled model."""
    monkeypatch.setattr(anyio, "run", partial(anyio.run, backend=anyio_backend))
    [example] = blocks(README)

    printed = run(example, {"__name__": "__main__"}, page="README.md")

    assert printed.count("Usage(prompt_tokens=") == 2
    second = printed.split("Usage(")[2]
    assert "cached_tokens=0" not in second


def test_float32_is_the_default_on_a_cpu() -> None:
    """What the example runs in: bfloat16 products are slower on most CPUs, and less exact."""
    from adapters.torch_device import open_torch

    opened = open_torch(model="bundled", device="cpu", dtype="auto")

    assert opened.device.model.dtype == "float32"


def test_the_example_has_fifteen_lines() -> None:
    """An example that has grown is no longer an example."""
    [example] = blocks(README)

    assert len(example.code.splitlines()) <= 15


@pytest.mark.parametrize(
    "said",
    [
        "make demo",
        "make test",
        "`kernel` and `adapters`",
        "tenure info",
        "Apache-2.0",
        "sglang/pull/23327",
        "working BatchOwned",
    ],
)
def test_the_readme_says_what_a_user_has_to_know_first(said: str) -> None:
    """Two commands, whose names clash, the licence, the motive and the picture of a turn."""
    assert said in README
