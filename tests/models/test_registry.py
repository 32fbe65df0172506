"""Families are found by name, and nobody but their own file knows it."""

import ast
import json
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch

import adapters
from adapters.models import families, registry
from adapters.models.config_reader import ConfigReader
from adapters.models.errors import ConfigError, UnsupportedModel
from adapters.models.family import Family
from adapters.models.loader import TensorLoader
from adapters.models.precision import Precision
from adapters.models.store import MemoryStore
from tests.models.published import PUBLISHED

ADAPTERS = Path(adapters.__file__).parent
# The bundled model's own package trains and describes it; GGUF has names of its own for families.
# These two are names of layers as well.
LAYERS = {"mamba", "mamba2"}
MAY_NAME_FAMILIES = ("models/families", "models/hybrid.py", "models/gguf", "training")


def texts(path: Path) -> Iterator[str]:
    """Every text constant of a file that isn't a docstring."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
    for constant in constants:
        if isinstance(constant.value, str) and id(constant) not in docstrings:
            yield constant.value


def test_nothing_outside_a_familys_file_knows_its_name() -> None:
    """A name elsewhere is a special case that the next family has to find."""
    names = set(registry.known_model_types()) - LAYERS
    wrong = [
        f"{path.relative_to(ADAPTERS)}: {text}"
        for path in sorted(ADAPTERS.rglob("*.py"))
        if not path.relative_to(ADAPTERS).as_posix().startswith(MAY_NAME_FAMILIES)
        for text in texts(path)
        if text in names
    ]

    assert wrong == []


def test_every_module_of_families_has_a_family_and_no_name_twice() -> None:
    """Two files that read one model_type: which of them would win is nobody's guess."""
    found: list[str] = []
    for module in pkgutil.iter_modules(families.__path__):
        family = pkgutil.resolve_name(f"{families.__name__}.{module.name}:FAMILY")
        assert isinstance(family, Family)
        found += family.model_types

    assert len(found) == len(set(found)) > 10


def test_an_unknown_family_is_refused_with_the_known_ones() -> None:
    """The first thing that a user with another model wants to know."""
    with pytest.raises(UnsupportedModel, match=r"'gpt2' isn't served; known are .*mamba2"):
        registry.family_of(ConfigReader({"model_type": "gpt2"}))


def test_a_configuration_without_a_model_type_is_refused() -> None:
    with pytest.raises(ConfigError, match="missing keys in config.json: model_type"):
        registry.family_of(ConfigReader({"hidden_size": 4}))


THEIRS = Family(("theirs",), registry.family_of(ConfigReader({"model_type": "mamba2"})).build)


def test_another_distribution_adds_its_family(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the name of an entry point, loaded when it is asked for and not before."""
    good = EntryPoint("theirs", "tests.models.test_registry:THEIRS", registry.MODELS)
    broken = EntryPoint("broken", "tests.models.nowhere:FAMILY", registry.MODELS)

    def installed(*, group: str, name: str | None = None) -> list[EntryPoint]:
        assert group == registry.MODELS
        return [entry for entry in (good, broken) if name in (None, entry.name)]

    monkeypatch.setattr(registry, "entry_points", installed)

    assert registry.family_of(ConfigReader({"model_type": "theirs"})) is THEIRS
    assert {"theirs", "broken", "mamba2"} <= set(registry.known_model_types())
    with pytest.raises(ModuleNotFoundError):
        registry.family_of(ConfigReader({"model_type": "broken"}))


def test_checking_a_model_reads_no_tensor() -> None:
    """A 400 GB directory must be refused, or planned for, in the time of its headers."""

    class Unreadable(MemoryStore):
        def read(self, name: str, /) -> torch.Tensor:
            raise AssertionError(f"{name} was read")

    config = {
        "model_type": "llama",
        "vocab_size": 10,
        "hidden_size": 8,
        "intermediate_size": 12,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "tie_word_embeddings": True,
    }
    reader = ConfigReader(config)
    precision = Precision(torch.float32, torch.float32, torch.float32)
    asked = TensorLoader(MemoryStore({}), precision, torch.device("meta"))
    registry.family_of(reader).build(reader, asked)
    weights = {name: torch.zeros(shape) for name, shape in asked.asked.shapes.items()}

    model, record = registry.check_model(reader, Unreadable(weights), precision)

    assert model.head.is_meta
    assert record.num_parameters == sum(tensor.numel() for tensor in weights.values())


CHECKED = """
import json, sys
import torch
from adapters.models.config_reader import ConfigReader
from adapters.models.precision import Precision
from adapters.models.registry import outline_model
precision = Precision(torch.float32, torch.float32, torch.float32)
for values in json.loads(sys.argv[1]):
    outline_model(ConfigReader(values), precision)
assert "torch._dynamo" not in sys.modules
"""


@pytest.mark.timeout(90)  # another process, which imports torch
def test_checking_a_model_does_not_import_torchs_compiler() -> None:
    """An exponential or a joining of meta tensors does, which takes seconds at every start."""
    text = json.dumps([model.config for model in PUBLISHED.values()])

    done = subprocess.run(
        [sys.executable, "-c", CHECKED, text], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
