"""A hybrid model on one torch device, with its arenas."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from adapters.models.hybrid import HybridConfig
from adapters.torch_device.arenas import Arenas, allocate_arenas
from adapters.torch_device.step import StepRunner
from adapters.torch_device.threads import (
    flush_denormals_in_this_thread,
    measured_thread_count,
    set_threads_of_this_thread,
    threads_from_environment,
    usable_processors,
)
from adapters.torch_device.weights import Precision, linear, prepare_weights
from adapters.torch_device.worker import RunStep, ThreadWorker
from kernel.errors import ValidationError
from kernel.step import DeviceLimits, ModelSpec, WorkerContext

__all__ = ["TorchDevice", "choose_precision"]

_PRECISIONS = {
    "float32": Precision(weights=torch.float32, compute=torch.float32),
    "float64": Precision(weights=torch.float64, compute=torch.float64),
    "bfloat16": Precision(weights=torch.bfloat16, compute=torch.float32),
}
_SAMPLE_ROWS = 32


def choose_precision(dtype: str, device: torch.device) -> Precision:
    """Number types for a ``dtype`` name; ``"auto"`` is float32 on a CPU, else bfloat16.

    bfloat16 products are slower than float32 ones on processors without AMX.
    """
    if dtype == "auto":
        dtype = "float32" if device.type == "cpu" else "bfloat16"
    if dtype not in _PRECISIONS:
        known = ", ".join(["auto", *_PRECISIONS])
        raise ValidationError(parameter="dtype", value=dtype, why=f"use one of {known}")
    return _PRECISIONS[dtype]


class TorchDevice:
    """Implements :class:`kernel.step.Device`.

    Args:
        weights: tensors by the names of ``parameter_shapes(config)``.
        dtype: "auto", "float32", "float64" or "bfloat16" (the state stays float32).
        device: a torch device's name.
        num_threads: torch threads of the worker; measured at its start when ``None``, unless the
            environment variable ``TENURE_TORCH_THREADS`` says it.
        poison: fill slots and pages that are given back with NaN.
    """

    def __init__(
        self,
        config: HybridConfig,
        weights: Mapping[str, Tensor],
        *,
        dtype: str = "auto",
        device: str = "cpu",
        num_threads: int | None = None,
        poison: bool = False,
    ) -> None:
        self._config = config
        self._device = torch.device(device)
        self._precision = choose_precision(dtype, self._device)
        self._weights = prepare_weights(config, weights, self._precision, self._device)
        self._num_threads = num_threads or threads_from_environment()
        self._poison = poison
        self._arenas: Arenas | None = None
        self._model = self._spec()

    @property
    def model(self) -> ModelSpec:
        return self._model

    def _spec(self) -> ModelSpec:
        config, precision = self._config, self._precision
        history = (config.conv_kernel - 1) * config.conv_size
        state = history + config.inner_size * config.state_size
        key = config.num_kv_heads * config.attn_head_dim
        return ModelSpec(
            name=config.name,
            vocab_size=config.vocab_size,
            max_model_len=config.max_model_len,
            eos_token_ids=config.eos_token_ids,
            uses_slots=bool(config.mamba_layers),
            uses_pages=bool(config.attention_layers),
            slot_bytes=len(config.mamba_layers) * state * precision.compute.itemsize,
            page_token_bytes=len(config.attention_layers) * 2 * key * precision.weights.itemsize,
            num_parameters=self._weights.num_parameters,
            dtype=str(precision.weights).removeprefix("torch."),
        )

    @property
    def arenas(self) -> Arenas:
        """The arenas, once allocated; tests look into them."""
        if self._arenas is None:
            raise RuntimeError("the device has no arenas: call allocate() first, or it is closed")
        return self._arenas

    def allocate(self, limits: DeviceLimits, /) -> None:
        """Allocate zeroed arenas for these limits."""
        self._arenas = allocate_arenas(
            self._config,
            limits,
            state_dtype=self._precision.compute,
            page_dtype=self._precision.weights,
            device=self._device,
        )

    def runner(self) -> StepRunner:
        """Runs steps on the caller's thread; a worker makes its own."""
        return StepRunner(
            config=self._config,
            weights=self._weights,
            arenas=self.arenas,
            precision=self._precision,
            poison=self._poison,
        )

    def start_worker(self, context: WorkerContext, /) -> ThreadWorker:  # noqa: ARG002
        """Start a thread over the arenas; it needs no timer, so ``context`` is not used."""
        runner = self.runner()

        def prepare() -> RunStep:
            flush_denormals_in_this_thread()
            self._set_threads()
            return runner.run

        return ThreadWorker(prepare, is_lost=self._is_lost)

    def close(self) -> None:
        """Let go of the arenas."""
        self._arenas = None

    def _set_threads(self) -> None:
        wanted = self._num_threads
        if self._device.type != "cpu":
            wanted = wanted or 1  # the device computes; the host only launches
        if wanted:
            set_threads_of_this_thread(wanted)
        else:
            most = min(usable_processors(), torch.get_num_threads())
            measured_thread_count(self._sample_work(), most)

    def _sample_work(self) -> Callable[[], object]:
        """Products like those of a decode step, for the measurement."""
        head = self._weights.head
        x = torch.ones(_SAMPLE_ROWS, head.shape[1], dtype=self._precision.compute)

        def work() -> object:
            with torch.inference_mode():
                return linear(x, head).exp()

        return work

    def _is_lost(self, error: BaseException) -> bool:
        """An accelerator's error, other than lack of memory, stays for ever."""
        out_of_memory = isinstance(error, torch.OutOfMemoryError)
        return isinstance(error, torch.AcceleratorError) and not out_of_memory
