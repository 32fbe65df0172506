"""The tutorial runs as it stands: every block in order, and what it prints is what the page says."""

from functools import partial
from pathlib import Path

import anyio
import pytest

from tests.docs.markdown import ROOT, Block, blocks, run

TUTORIAL = ROOT / "docs" / "tutorial.md"
WEIGHTS = ROOT / "adapters" / "models" / "bundled" / "model.safetensors"


def _run(chosen: list[Block], namespace: dict[str, object]) -> list[tuple[int, str, str | None]]:
    """Run blocks; returns line, what was printed and what was promised."""
    return [(each.line, run(each, namespace, page="tutorial.md"), each.output) for each in chosen]


@pytest.fixture
def page(anyio_backend: str, monkeypatch: pytest.MonkeyPatch) -> list[Block]:
    """The blocks of the tutorial, whose ``anyio.run`` runs on the backend under test."""
    monkeypatch.setattr(anyio, "run", partial(anyio.run, backend=anyio_backend))
    return blocks(TUTORIAL.read_text(encoding="utf-8"))


def test_every_block_of_the_tutorial_prints_what_the_page_says(page: list[Block]) -> None:
    """A reader who types a block in sees what is printed below it, on either event loop."""
    on_the_fake_device = [block for block in page if "bundled" not in block.words]

    ran = _run(on_the_fake_device, {"__name__": "tutorial"})

    assert len(ran) > 8
    assert [(line, said) for line, said, promised in ran if said != (promised or "")] == []


@pytest.mark.skipif(not WEIGHTS.is_file(), reason="the bundled model is not in this checkout")
@pytest.mark.timeout(120)
def test_the_tutorials_last_section_writes_text_with_the_bundled_model(page: list[Block]) -> None:
    """The page ends on a real model; no output is promised, but some has to come."""
    import adapters.torch_device.factory as torch_factory
    from kernel import engine

    namespace: dict[str, object] = {"__name__": "tutorial"}
    _run(page[:1], namespace)
    pytest.importorskip("torch")
    with pytest.MonkeyPatch.context() as patch:
        # Also in a checkout that isn't installed, where no entry point leads to the device.
        patch.setattr(
            engine,
            "_open_device",
            lambda config: torch_factory.open_torch(
                model=config.model, device=config.device, dtype=config.dtype
            ),
        )
        [(_, said, _)] = _run([block for block in page if "bundled" in block.words], namespace)

    assert "The old lighthouse keeper said" in said
    assert len(said.splitlines()) >= 2


def test_the_tutorial_covers_the_public_verbs() -> None:
    """What a newcomer needs first is shown running, not only named."""
    code = "\n".join(block.code for block in blocks(TUTORIAL.read_text(encoding="utf-8")))

    for name in (
        "engine.complete(",
        "engine.stream(",
        "engine.session(",
        "session.turn(",
        "session.interrupt(",
        "engine.audit(",
        "audit_file(",
        "BlockingEngine(",
        "scheduler.rollback(",
    ):
        assert name in code


def test_a_page_that_promises_another_output_is_found(tmp_path: Path) -> None:
    """Guards the guard: a stale output must fail, and the rewriter must repair it."""
    from tests.docs.markdown import rewrite

    path = tmp_path / "page.md"
    path.write_text("```python\nprint(6 * 7)\n```\n\n```text\n41\n```\n", encoding="utf-8")
    [stale] = blocks(path.read_text(encoding="utf-8"))
    rewrite(path)
    [fresh] = blocks(path.read_text(encoding="utf-8"))

    assert run(stale, {}, page="page.md") != stale.output
    assert run(fresh, {}, page="page.md") == fresh.output
