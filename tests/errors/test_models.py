"""Models and devices that aren't there, or are damaged: refused when the engine is opened."""

import json
import threading
from collections.abc import Callable
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save
from tokenizers import Tokenizer
from tokenizers.models import BPE

from adapters.models.weights import load_weights
from kernel import Engine, EngineConfig, ModelError, TenureError, ValidationError
from kernel.engine.opening import DEVICES
from tests.errors.door import says
from tests.errors.models import make_model

pytestmark = pytest.mark.parametrize("anyio_backend", ["asyncio"])

SETTINGS: dict[str, Any] = {"num_slots": 1, "num_pages": 4, "max_num_seqs": 1, "page_size": 4}


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry points of an installed package, also in a checkout that isn't."""
    known = EntryPoints(
        [
            EntryPoint("cpu", "adapters.torch_device:open_torch", DEVICES),
            EntryPoint("cuda", "adapters.torch_device:open_torch", DEVICES),
            EntryPoint("fake", "adapters.fake_device:open_fake", DEVICES),
        ]
    )
    monkeypatch.setattr("kernel.engine.opening.entry_points", known.select)
    monkeypatch.setenv("TENURE_TORCH_THREADS", "1")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A whole model directory, to be damaged."""
    return make_model(tmp_path)


async def refusal(config: EngineConfig) -> TenureError:
    """The error of an engine that doesn't open; it leaves no thread of its own."""
    before = {thread for thread in threading.enumerate() if "tenure" in thread.name}
    with pytest.raises(TenureError) as caught:
        async with Engine.open(config):
            raise AssertionError("it opened")
    assert {thread for thread in threading.enumerate() if "tenure" in thread.name} == before
    return caught.value


@pytest.mark.parametrize(
    ("settings", "parameter", "way_out"),
    [
        ({"device": ""}, "device", "not empty"),
        ({"dtype": "float8"}, "dtype", "use one of auto"),
        *([] if torch.cuda.is_available() else [({"device": "cuda"}, "device", "use 'cpu'")]),
    ],
)
async def test_a_device_that_is_not_here_is_refused(
    settings: dict[str, Any], parameter: str, way_out: str
) -> None:
    """With what there is instead."""
    with pytest.raises(ValidationError) as caught:
        async with Engine.open(EngineConfig(**settings)):
            raise AssertionError("it opened")
    assert caught.value.parameter == parameter
    says(caught, f"{parameter}='{settings[parameter]}'", way_out)


@pytest.mark.parametrize(
    ("device", "name"), [("cpu", "no-such-model"), ("cpu", "README.md"), ("fake", "bundled")]
)
async def test_a_name_that_is_no_model_is_refused(device: str, name: str) -> None:
    """A file is no directory, and the fake device has models of its own."""
    error = await refusal(EngineConfig(model=name, device=device))

    assert isinstance(error, ModelError)
    assert f"{name!r}" in str(error)


def edit_config(**changes: object) -> Callable[[Path], object]:
    def damage(model: Path) -> None:
        path = model / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return damage


def write(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda model: (model / name).write_bytes(content)


def make_it_a_directory(name: str) -> Callable[[Path], object]:
    def damage(model: Path) -> None:
        (model / name).unlink()
        (model / name).mkdir()

    return damage


def cut(name: str, kept: float) -> Callable[[Path], object]:
    def damage(model: Path) -> None:
        whole = (model / name).read_bytes()
        (model / name).write_bytes(whole[: int(len(whole) * kept)])

    return damage


def edit_weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], object]:
    def damage(model: Path) -> None:
        _, weights = load_weights(model)
        change(weights)
        (model / "model.safetensors").write_bytes(save(weights))

    return damage


NORM = "final_norm.weight"
DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "config is a directory": (make_it_a_directory("config.json"), "config.json"),
    "weights are a directory": (make_it_a_directory("model.safetensors"), "model.safetensors"),
    "config of another kind": (edit_config(model_type="rwkv9"), "'rwkv9'"),
    "config without kind": (edit_config(model_type=None), "tenure_hybrid"),
    "config with an unknown key": (edit_config(rotary=1), "rotary"),
    "config with a wrong number": (edit_config(hidden_size=-1), "hidden_size"),
    "config with an unknown layer": (edit_config(layer_types=["rwkv"]), "'rwkv'"),
    "config cut short": (cut("config.json", 0.5), "JSON"),
    "config that is a list": (write("config.json", b"[]"), "object"),
    "config that is no text": (write("config.json", b"\xff\xfe"), "UTF-8"),
    "config for larger weights": (edit_config(vocab_size=17), "embed.weight"),
    "weights cut in the header": (cut("model.safetensors", 0.001), "model.safetensors"),
    "weights cut in the data": (cut("model.safetensors", 0.9), "copy it again"),
    "empty weights": (write("model.safetensors", b""), "model.safetensors"),
    "weights that are text": (write("model.safetensors", b"version 1\n" * 9), "safetensors"),
    "weights without a tensor": (edit_weights(lambda weights: weights.pop(NORM)), NORM),
    "weights with a misshapen tensor": (
        edit_weights(lambda weights: weights.update({NORM: torch.ones(17)})),
        f"{NORM} is [17]",
    ),
    "weights that are whole numbers": (
        edit_weights(lambda weights: weights.update({NORM: torch.ones(16, dtype=torch.int8)})),
        "int8",
    ),
    "tokenizer cut short": (cut("tokenizer.json", 0.5), "tokenizer.json"),
    "tokenizer that is empty": (write("tokenizer.json", b""), "tokenizer.json"),
    "tokenizer that is no text": (write("tokenizer.json", b"\xff"), "tokenizer.json"),
    "tokenizer of another model": (
        lambda model: Tokenizer(BPE(vocab={"a": 16}, merges=[])).save(
            str(model / "tokenizer.json")
        ),
        "belong together",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
async def test_a_damaged_model_is_refused_and_the_damage_named(name: str, model: Path) -> None:
    """Not half loaded, not silently wrong, and not as an error of some library."""
    damage, told = DAMAGES[name]
    damage(model)
    error = await refusal(EngineConfig(model=str(model), **SETTINGS))

    assert isinstance(error, ModelError), repr(error)
    assert told in str(error)
