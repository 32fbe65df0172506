"""A model on one torch device, with its arenas."""

from collections.abc import Callable, Mapping
from typing import Self

import torch
from torch import Tensor

from adapters.layers.linear import linear
from adapters.models.config_reader import ConfigReader
from adapters.models.decoder import CausalModel
from adapters.models.generation_config import NO_DEFAULTS, GenerationDefaults
from adapters.models.precision import Precision
from adapters.models.registry import load_model
from adapters.models.store import MemoryStore
from adapters.ragged.arenas import Arenas, allocate_arenas
from adapters.torch_device.memory import model_spec
from adapters.torch_device.precision import choose_precision
from adapters.torch_device.prepare import NewestStep
from adapters.torch_device.step import StepRunner
from adapters.torch_device.threads import (
    flush_denormals_in_this_thread,
    measured_thread_count,
    set_threads_of_this_thread,
    threads_from_environment,
    usable_processors,
)
from adapters.torch_device.transfers import TransferRunner
from adapters.torch_device.worker import RunStep, RunTransfer, ThreadWorker
from kernel.step import DeviceLimits, ModelSpec, WorkerContext

__all__ = ["TorchDevice"]

_SAMPLE_ROWS = 32


class TorchDevice:
    """Implements :class:`kernel.step.Device`.

    Args:
        model: with its tensors on ``device``.
        precision: the number types that it was loaded in.
        num_parameters: numbers in its tensors.
        device: where its tensors are.
        fingerprint: of the model, where one was made.
        generation: what the model's generation_config.json says.
        num_threads: torch threads of the worker; measured at its start when ``None``, unless the
            environment variable ``TENURE_TORCH_THREADS`` says it.
        poison: fill slots and pages that are given back with NaN.
    """

    def __init__(
        self,
        model: CausalModel,
        precision: Precision,
        *,
        num_parameters: int,
        device: torch.device,
        fingerprint: str = "",
        generation: GenerationDefaults = NO_DEFAULTS,
        num_threads: int | None = None,
        poison: bool = False,
    ) -> None:
        self._causal = model
        self._device = device
        self._precision = precision
        self._num_threads = num_threads or threads_from_environment()
        self._poison = poison
        self._newest_step, self._newest_transfer = NewestStep(), NewestStep()
        self._arenas: Arenas | None = None
        self._model = generation.applied_to(
            model_spec(
                model.shape, precision, num_parameters=num_parameters, fingerprint=fingerprint
            )
        )

    @classmethod
    def of_weights(
        cls,
        config: Mapping[str, object],
        weights: Mapping[str, Tensor],
        *,
        dtype: str = "auto",
        device: str = "cpu",
        num_threads: int | None = None,
        poison: bool = False,
    ) -> Self:
        """A device for tensors that are in memory already.

        Args:
            config: what config.json would hold.
            weights: tensors by the names that the family gives them.
            dtype: as in ``EngineConfig``.
            device: a torch device's name.
            num_threads: as above.
            poison: as above.

        Raises:
            ConfigError, WeightsError: they don't make a model.
        """
        where = torch.device(device)
        precision = choose_precision(dtype, where)
        model, asked = load_model(ConfigReader(config), MemoryStore(weights), precision, where)
        return cls(
            model,
            precision,
            num_parameters=asked.num_parameters,
            device=where,
            num_threads=num_threads,
            poison=poison,
        )

    @property
    def model(self) -> ModelSpec:
        return self._model

    @property
    def arenas(self) -> Arenas:
        """The arenas, once allocated; tests look into them."""
        if self._arenas is None:
            raise RuntimeError("the device has no arenas: call allocate() first, or it is closed")
        return self._arenas

    def allocate(self, limits: DeviceLimits, /) -> None:
        """Allocate zeroed arenas for these limits."""
        self._arenas = allocate_arenas(
            self._causal.shape,
            limits,
            state_dtype=self._precision.state,
            page_dtype=self._precision.weights,
            device=self._device,
        )

    def runner(self) -> StepRunner:
        """Runs steps on the caller's thread; a worker makes its own."""
        return StepRunner(
            model=self._causal,
            arenas=self.arenas,
            precision=self._precision,
            poison=self._poison,
            newest=self._newest_step,
        )

    def transfer_runner(self) -> TransferRunner:
        """Runs transfers on the caller's thread; a worker makes its own."""
        return TransferRunner(
            arenas=self.arenas,
            device=self._device,
            poison=self._poison,
            newest=self._newest_transfer,
        )

    def start_worker(self, context: WorkerContext, /) -> ThreadWorker:  # noqa: ARG002
        """Start a thread over the arenas; it needs no timer, so ``context`` is not used."""
        runner, copier = self.runner(), self.transfer_runner()

        def prepare() -> RunStep:
            flush_denormals_in_this_thread()
            self._set_threads()
            return runner.run

        def prepare_transfers() -> RunTransfer:
            set_threads_of_this_thread(1)  # copying is bound by the memory, and steps run beside
            return copier.run

        return ThreadWorker(prepare, prepare_transfers=prepare_transfers, is_lost=self._is_lost)

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
        head = self._causal.head
        x = torch.ones(_SAMPLE_ROWS, head.shape[1], dtype=self._precision.compute)

        def work() -> object:
            with torch.inference_mode():
                return linear(x, head).exp()

        return work

    def _is_lost(self, error: BaseException) -> bool:
        """An accelerator's error, other than lack of memory, stays for ever."""
        out_of_memory = isinstance(error, torch.OutOfMemoryError)
        return isinstance(error, torch.AcceleratorError) and not out_of_memory
