"""What the pages show, link to and name is there."""

import ast
import pkgutil
import re
import tomllib
from functools import cache
from pathlib import Path

import attrs
import pytest

from kernel import EngineConfig, errors
from kernel.engine.opening import DEVICES
from kernel.requests.options import RequestOptions
from tests.docs.figures import fill, names
from tests.docs.markdown import ROOT, blocks, links, pages, run

DOCS = ROOT / "docs"
RUN_ELSEWHERE = {"README.md", "tutorial.md"}
WITH_CODE = [
    page
    for page in pages()
    if page.name not in RUN_ELSEWHERE and blocks(page.read_text(encoding="utf-8"))
]
PACKAGES = ("ownership", "kernel", "adapters")


def _name(page: Path) -> str:
    return page.name


def _anchors(page: Path) -> set[str]:
    """The anchors that a heading gets on the usual renderers."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", WITH_CODE, ids=_name)
def test_the_code_of_a_page_prints_what_the_page_says(page: Path) -> None:
    """A page whose code no longer runs teaches the wrong thing."""
    chosen = blocks(page.read_text(encoding="utf-8"))

    namespace: dict[str, object] = {"__name__": "page"}
    printed = {block.line: run(block, namespace, page=page.name) for block in chosen}

    assert printed == {block.line: block.output or "" for block in chosen}


@pytest.mark.parametrize("page", pages(), ids=_name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    """A file that was renamed, or a heading that was reworded, breaks links silently."""
    broken: list[str] = []
    for link in links(page.read_text(encoding="utf-8")):
        if "://" in link or link.startswith("mailto:"):
            continue
        target, _, anchor = link.partition("#")
        found = page.parent / target if target else page
        if not found.exists() or (anchor and anchor not in _anchors(found)):
            broken.append(link)

    assert broken == []


@pytest.mark.parametrize("package", PACKAGES)
def test_the_architecture_page_names_every_module(package: str) -> None:
    """A reader finds each file there in one line, so a new file needs its line."""
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    modules = [
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.name != "__init__.py"
    ]

    assert [module for module in modules if f"`{module}`" not in text] == []


@pytest.mark.parametrize("page", pages(), ids=_name)
def test_files_that_a_page_names_exist(page: Path) -> None:
    """The other direction: no page names a module that was renamed or removed."""
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:ownership|kernel|adapters|tests|docs)/[\w./-]*)`", text))

    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_the_page_about_services_names_every_option() -> None:
    """One that stands in no page is found by reading the code, or not at all."""
    text = (DOCS / "service.md").read_text(encoding="utf-8")
    options = {*attrs.fields_dict(EngineConfig), *RequestOptions.__annotations__}

    assert sorted(option for option in options if f"`{option}`" not in text) == []


def test_the_page_about_services_names_every_error() -> None:
    """Whoever has to answer for one wants to know whether to try again."""
    text = (DOCS / "service.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(?:kernel\.)?(\w+)`", text))

    assert sorted(set(errors.__all__) - named) == []


def test_the_devices_and_the_command_that_pages_name_are_entry_points_that_load() -> None:
    """``EngineConfig(device="fake")`` and ``tenure demo`` lead somewhere once installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    devices = project["entry-points"][DEVICES]
    loaded = [
        pkgutil.resolve_name(target) for target in (*devices.values(), project["scripts"]["tenure"])
    ]

    assert {"cpu", "cuda", "fake"} <= devices.keys()
    assert all(callable(each) for each in loaded)


@cache
def _tests_in(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))


def test_the_acceptance_page_names_only_tests_that_exist() -> None:
    """It says what is proven; a test that was renamed proves nothing under its old name."""
    text = (DOCS / "acceptance.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text)

    missing = [
        f"{path}::{name}"
        for path, name in named
        if not (ROOT / path).is_file() or (name and name not in _tests_in(ROOT / path))
    ]
    assert len(named) > 50
    assert missing == []


def test_the_table_of_figures_takes_what_the_bench_prints() -> None:
    """The figures are written by a command; one that it does not know would stay empty."""
    page = (DOCS / "performance.md").read_text(encoding="utf-8")
    bench = {
        "ledger_ns": 1.5,
        "lease_us": 2,
        "hop_us": 3,
        "step_ms": {"1": 4, "32": 5, "256": 6},
        "idle_sessions": {
            "count": 7,
            "bytes_each": 8,
            "bytes_after_turns": 13,
            "bytes_with_store": 14,
            "open_s": 9,
        },
        "ttft_ms": {"100": 10, "1000": 11, "10000": 12, "tokens_computed": {"100": [4]}},
    }

    filled = fill(page, bench)

    assert len(names(page)) == 14
    assert "| 1.5 |" in filled
    assert "| 12 |" in filled
    assert fill(filled, bench) == filled
