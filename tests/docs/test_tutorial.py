"""The tutorial runs as it stands: each block in order, and what it prints is what it says."""

from functools import partial
from pathlib import Path

import anyio
import pytest

from tests.docs.markdown import ROOT, Block, blocks, rewrite, run

TUTORIAL = ROOT / "docs" / "tutorial.md"


@pytest.fixture
def page(anyio_backend: str, monkeypatch: pytest.MonkeyPatch) -> list[Block]:
    """The blocks of the tutorial, whose ``anyio.run`` runs on the backend under test."""
    monkeypatch.setattr(anyio, "run", partial(anyio.run, backend=anyio_backend))
    return blocks(TUTORIAL.read_text(encoding="utf-8"))


def test_every_block_of_the_tutorial_prints_what_the_page_says(page: list[Block]) -> None:
    """A reader who types a block in sees what is printed below it, on either event loop."""
    on_the_fake_device = [block for block in page if "bundled" not in block.words]

    namespace: dict[str, object] = {"__name__": "tutorial"}
    printed = {each.line: run(each, namespace, page=TUTORIAL.name) for each in on_the_fake_device}

    assert len(printed) > 8
    assert printed == {each.line: each.output or "" for each in on_the_fake_device}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
def test_the_tutorials_last_section_writes_text_with_the_bundled_model(
    page: list[Block],
) -> None:
    """The page ends on a real model; no output is promised, but some has to come."""
    namespace: dict[str, object] = {"__name__": "tutorial"}
    run(page[0], namespace, page=TUTORIAL.name)

    [real] = [block for block in page if "bundled" in block.words]
    printed = run(real, namespace, page=TUTORIAL.name)

    assert "The old lighthouse keeper said" in printed
    assert len(printed) > 100


def test_the_tutorial_shows_the_public_verbs_running() -> None:
    """What a newcomer needs first is run, not only named."""
    code = "\n".join(block.code for block in blocks(TUTORIAL.read_text(encoding="utf-8")))

    wanted = (
        "engine.complete(",
        "engine.stream(",
        "engine.session(",
        "session.turn(",
        "session.append(",
        "session.interrupt(",
        "session.close(",
        "session.fork(",
        "engine.attach(",
        "engine.list_sessions(",
        "engine.map(",
        "engine.generate(",
        "engine.abort(",
        "engine.stats(",
        "engine.health(",
        "engine.audit(",
        "engine.tokenizer",
        "audit_file(",
        "BlockingEngine(",
        "scheduler.rollback(",
    )
    assert [name for name in wanted if name not in code] == []


def test_a_page_that_promises_another_output_is_found_and_can_be_rewritten(tmp_path: Path) -> None:
    """Guards the guard: a stale output must differ, and the rewriter must repair it."""
    path = tmp_path / "page.md"
    path.write_text("```python\nprint(6 * 7)\n```\n\n```text\n41\n```\n", encoding="utf-8")
    [stale] = blocks(path.read_text(encoding="utf-8"))
    rewrite(path)
    [fresh] = blocks(path.read_text(encoding="utf-8"))

    assert run(stale, {}, page="page.md") != stale.output
    assert run(fresh, {}, page="page.md") == fresh.output
