"""What a plan says is what a device takes: pools to the byte, temporaries at most."""

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

from adapters.models.config_reader import ConfigReader
from adapters.models.registry import outline_model
from adapters.torch_device import open_torch
from adapters.torch_device.device import TorchDevice
from adapters.torch_device.free_memory import free_memory
from adapters.torch_device.memory import step_bytes
from adapters.torch_device.planning import plan_model
from adapters.torch_device.precision import choose_precision
from kernel import Engine, EngineConfig, NotEnoughMemory, ValidationError
from tests.models.tiny import RECURRENT, config_of, make_directory

CPU = torch.device("cpu")


def arena_bytes(device: TorchDevice) -> tuple[int, int]:
    """Of slots and of pages, as allocated."""
    arenas = device.arenas
    slots = sum(tensor.nbytes for tensor in arenas.states.tensors.values())
    return slots, arenas.pages.keys.nbytes + arenas.pages.values.nbytes


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dtype": "bfloat16"},
        {"dtype": "bfloat16", "state_dtype": "bfloat16"},
        {"dtype": "float64", "page_size": 5},
        {"num_slots": 3, "num_pages": 7},
        {"memory_bytes": "200MiB", "max_sessions": 7},
        {"memory_bytes": "160MiB", "max_model_len": 100},
    ],
    ids=str,
)
async def test_the_planned_bytes_are_the_allocated_ones(
    options: dict[str, Any], anyio_backend: str
) -> None:
    """Of the bundled hybrid, for every way to ask; the padding is counted."""
    config = EngineConfig.from_dict({"max_num_seqs": 4, **options})
    plan = plan_model(config).plan
    async with Engine.open(config) as engine:
        device = engine.core.device
        assert isinstance(device, TorchDevice)
        limits, model = engine.core.limits, engine.core.model
        assert arena_bytes(device) == (plan.slots_bytes, plan.pages_bytes)

    assert (limits.num_slots, limits.num_pages) == (plan.num_slots, plan.num_pages)
    assert (model.slot_bytes, model.page_token_bytes * plan.page_size) == (
        plan.slot_bytes,
        plan.page_bytes,
    )


def test_a_model_of_attention_only_gets_no_slots(tmp_path: Path) -> None:
    plan = plan_model(EngineConfig(model=str(make_directory(tmp_path)), max_num_seqs=2)).plan

    assert (plan.num_slots, plan.slot_bytes, plan.slots_bytes) == (0, 0, 0)
    assert plan.page_bytes == 16 * 2 * 2 * 2 * 4 * 4  # tokens, k and v, layers, heads, width, bytes
    assert plan.num_pages == 4 * 128 // 16
    assert plan.largest_turn == 128


def write_config(directory: Path, config: dict[str, Any]) -> str:
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    return str(directory)


def test_a_recurrent_model_gets_no_pages_and_needs_no_weights_to_be_planned(tmp_path: Path) -> None:
    """Nothing but config.json is there."""
    found = plan_model(EngineConfig(model=write_config(tmp_path, RECURRENT), max_num_seqs=3))
    conv, ssm = 3 * (32 + 2 * 8), 4 * 8 * 8

    assert (found.plan.num_pages, found.plan.pages_bytes) == (0, 0)
    assert found.plan.slot_bytes == 2 * (conv + ssm) * 4
    assert found.plan.num_slots == 6
    assert not found.checked_weights


QWEN3_NEXT_80B = {
    "model_type": "qwen3_next",
    "vocab_size": 151936,
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "num_hidden_layers": 48,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "partial_rotary_factor": 0.25,
    "rope_theta": 10_000_000,
    "max_position_embeddings": 262144,
    "rms_norm_eps": 1e-6,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "decoder_sparse_step": 1,
    "norm_topk_prob": True,
    "mlp_only_layers": [],
    "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 12,
    "hidden_act": "silu",
    "attention_bias": False,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def test_a_model_of_80_billion_is_planned_without_its_memory(tmp_path: Path) -> None:
    """Sizes as published; a slot is 75 MiB, the inputs of the convolutions in float32 too."""
    model = write_config(tmp_path, QWEN3_NEXT_80B)
    config = EngineConfig(
        model=model, device="cuda", memory_bytes="180GiB", max_num_seqs=32, max_sessions=100
    )
    found = plan_model(config)
    plan = found.plan
    state, conv = 32 * 128 * 128, 3 * (2 * 16 * 128 + 32 * 128)

    assert 79e9 < found.num_parameters < 81e9
    assert plan.weights_bytes > 2 * 79e9
    assert plan.slot_bytes == 36 * (state + conv) * 4
    assert plan.page_bytes == 16 * 12 * 2 * 2 * 256 * 2
    assert plan.total_bytes <= 180 << 30
    assert (found.dtype, found.state_dtype) == ("bfloat16", "float32")
    with pytest.raises(NotEnoughMemory, match="weights of 149 GiB"):
        plan_model(EngineConfig(model=model, device="cuda", memory_bytes="140GiB"))


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_an_engine_that_can_not_hold_one_turn_does_not_open(anyio_backend: str) -> None:
    """With the same words as the plan."""
    config = EngineConfig(memory_bytes=64 << 20)
    with pytest.raises(NotEnoughMemory) as planned:
        plan_model(config)
    with pytest.raises(NotEnoughMemory) as opened:
        async with Engine.open(config):
            raise AssertionError("it opened")

    assert str(opened.value) == str(planned.value)


def test_a_plan_for_a_device_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValidationError, match="device='abacus' is refused"):
        plan_model(EngineConfig(device="abacus", memory_bytes="1GiB"))


def test_weights_that_are_larger_than_the_memory_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rather an error than the kernel's out-of-memory killer."""
    model = make_directory(tmp_path)

    def little(_device: torch.device) -> int:
        return 10_000

    monkeypatch.setattr("adapters.torch_device.factory.free_memory", little)

    with pytest.raises(NotEnoughMemory, match="9.77 KiB are free on cpu; use a smaller model"):
        open_torch(model=str(model), device="cpu", dtype="auto")


def test_temporaries_grow_with_the_step_and_not_without_bound() -> None:
    """A step is cut into passes; only what one sequence reads grows with its length."""
    precision = choose_precision("float32", CPU)
    shape = outline_model(ConfigReader(config_of()), precision)[0].shape

    def of(rows: int, tokens: int, longest: int = 100) -> int:
        return step_bytes(shape, precision, rows=rows, tokens=tokens, longest=longest)

    assert of(1, 1) < of(1, 64) < of(64, 64) < of(64, 512) < of(64, 512, 1000)
    assert of(10**6, 10**8) < 1 << 30


def test_free_memory_is_the_least_of_machine_and_container(tmp_path: Path) -> None:
    """A container's limit counts, without the page cache that it would give back."""
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 900 kB\nMemAvailable:     500 kB\n")

    def free() -> int | None:
        return free_memory(CPU, proc=proc, cgroup=groups)

    assert free() == 500 * 1024
    (proc / "self" / "cgroup").write_text("0::/a/b\n")
    inner = groups / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "memory.max").write_text("max\n")
    (inner / "memory.current").write_text("1000\n")
    assert free() == 500 * 1024
    (inner.parent / "memory.max").write_text("300000\n")
    (inner.parent / "memory.current").write_text("250000\n")
    assert free() == 50_000
    (inner.parent / "memory.stat").write_text("anon 7\ninactive_file 20000\n")
    assert free() == 70_000
    (inner / "memory.max").write_text("900\n")
    assert free() == 0


def test_free_memory_in_a_group_of_the_first_version(tmp_path: Path) -> None:
    """Also where the group's path is the one outside of the container."""
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text("5:cpu:/x\n4:memory:/not/in/here\n0::/\n")
    (groups / "memory").mkdir(parents=True)
    (groups / "memory" / "memory.limit_in_bytes").write_text("9000\n")
    (groups / "memory" / "memory.usage_in_bytes").write_text("4000\n")
    (groups / "memory" / "memory.stat").write_text("total_inactive_file 500\n")

    assert free_memory(CPU, proc=proc, cgroup=groups) == 5_500


def test_what_nothing_tells_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another system, without psutil: the pools are sized without regard to memory."""
    monkeypatch.setitem(sys.modules, "psutil", None)
    assert free_memory(torch.device("meta")) is None
    assert free_memory(CPU, proc=tmp_path, cgroup=tmp_path) is None


def test_elsewhere_psutil_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it is installed; it is no dependency."""
    module = types.ModuleType("psutil")
    memory = types.SimpleNamespace(available=77)
    monkeypatch.setattr(module, "virtual_memory", lambda: memory, raising=False)
    monkeypatch.setitem(sys.modules, "psutil", module)

    assert free_memory(CPU, proc=tmp_path, cgroup=tmp_path) == 77
