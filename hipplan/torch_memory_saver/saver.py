"""TorchMemorySaver: the calls of torch_memory_saver 0.0.10."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Literal, get_args

from hipplan.errors import ApplyError, Diagnostic, SettingError
from hipplan.layout.mempool import in_own_memory
from hipplan.program.refusals import cannot_sleep
from hipplan.torch_memory_saver.pools import Kind, Pools

log = logging.getLogger("hipplan")

HookMode = Literal["preload", "torch"]
CpuBackupBackend = Literal["mmap", "pinned"]
DEFAULT_TAG = "default"


class TorchMemorySaver:
    """Tensors that are made in `region` give up their memory in `pause` and have it again, at the same addresses, after
    `resume`.

    The methods and their arguments are those of torch_memory_saver 0.0.10. Nothing is preloaded: the memory is a layout
    of hipplan's, and errors are hipplan's exceptions (docs/frameworks.md).
    """

    _impl = None
    """Some programs ask whether there is a preloaded library to configure: there is none."""

    def __init__(self) -> None:
        self._pools = Pools()
        self._hook_mode: HookMode = "preload"
        self._retains = _setting("TMS_RETAIN_CPU_BACKUP")

    @contextmanager
    def region(
        self,
        tag: str = DEFAULT_TAG,
        enable_cpu_backup: bool = False,
        enable_disk_backup: bool = False,
        cpu_backup_backend: CpuBackupBackend | None = None,
    ) -> Iterator[None]:
        """While entered, what this thread allocates on PyTorch's current device has the tag.

        enable_cpu_backup: pause() copies the bytes to pinned host memory; else they are dropped. cpu_backup_backend:
        both names mean that same memory, which resume() frees. A region inside another takes its place for as long.
        Raises ValueError: an unknown backend, or one without a backup; ApplyError: HP440 for enable_disk_backup, HP441
        the tag is paused; and as hipplan.apply and Layout.torch_pool.
        """
        with self._pools.used(_kind(tag, enable_cpu_backup, enable_disk_backup, cpu_backup_backend)):
            yield

    @contextmanager
    def cuda_graph(
        self,
        cuda_graph: Any,
        pool: Any = None,
        stream: Any = None,
        capture_error_mode: str = "global",
        tag: str = DEFAULT_TAG,
        enable_cpu_backup: bool = False,
        cpu_backup_backend: CpuBackupBackend | None = None,
    ) -> Iterator[None]:
        """torch.cuda.graph(), with the graph's memory in a region. Raises as region()."""
        kind = _kind(tag, enable_cpu_backup, False, cpu_backup_backend)
        how = {"pool": pool, "stream": stream, "capture_error_mode": capture_error_mode}
        with self._pools.captured(kind, cuda_graph, **how):
            yield

    @contextmanager
    def disable(self, dispose_mem_pool_after_use: bool = True) -> Iterator[None]:
        """While entered, this thread allocates in no region. What is free at the end goes back to the driver.

        Raises ValueError: dispose_mem_pool_after_use is False.
        """
        if not dispose_mem_pool_after_use:
            raise ValueError("disable() always frees its memory: dispose_mem_pool_after_use is True")
        with in_own_memory():
            yield

    def pause(self, tag: str | None = None) -> None:
        """Frees the memory of a tag, or of all tags: of all of it or of none. What is paused already stays so.

        Raises ApplyError (HP440: this release of ROCm does not free it; HP401), LayoutInUse (HP409: a thread is in a
        region), MachineError, LeakError. The error names what is paused.
        """
        _require_regions()
        self._pools.pause(tag or None)

    def resume(self, tag: str | None = None) -> None:
        """Restores the memory of a tag, or of all tags; bytes without a backup are undefined.

        Raises ApplyError (HP442: the device has too little memory; HP401), LeakError. The error names what is paused.
        """
        self._pools.resume(tag or None, retain=self._retains)

    def _ensure_initialized(self) -> None:
        """Some programs call it: there is nothing to do before the first region."""

    @property
    def enabled(self) -> bool:
        """True."""
        return True

    @property
    def hook_mode(self) -> HookMode:
        """Either mode is the same here: PyTorch allocates in a torch.cuda.MemPool, and nothing is preloaded."""
        return self._hook_mode

    @hook_mode.setter
    def hook_mode(self, hook_mode: HookMode) -> None:
        if hook_mode not in get_args(HookMode):
            raise ValueError(f"hook_mode is 'preload' or 'torch', not {hook_mode!r}")
        self._hook_mode = hook_mode

    @property
    def memory_margin_bytes(self) -> int:
        """Has no effect here: a region allocates as long as the device has memory."""
        return 0

    @memory_margin_bytes.setter
    def memory_margin_bytes(self, value: int) -> None:
        if value:
            log.warning("torch_memory_saver.memory_margin_bytes has no effect: regions allocate all of the device")

    @property
    def retain_cpu_backup(self) -> bool:
        """Whether resume() keeps the copies in host memory, so that the next pause() allocates none."""
        return self._retains

    @retain_cpu_backup.setter
    def retain_cpu_backup(self, value: bool) -> None:
        self._retains = bool(value)

    def get_cpu_backup(self, x: Any, zero_copy: bool = False) -> Any:
        """The copy of a tensor in host memory, as a tensor; None if there is none, or the tensor is in no region.

        zero_copy: shares the memory of the copy, which then stays until that tensor is deleted. Raises ValueError: not
        a contiguous tensor on a GPU; ApplyError (HP441): it is paused, and its bytes were dropped.
        """
        if not x.is_cuda or not x.is_contiguous():
            raise ValueError(f"get_cpu_backup() is for contiguous tensors on a GPU, not {x.shape} on {x.device}")
        torch = import_module("torch")
        copy = self._pools.host_copy(x.data_ptr(), x.nbytes) if x.nbytes else memoryview(bytearray())
        if copy is None:
            return None
        of_bytes = torch.frombuffer(copy, dtype=torch.uint8) if x.nbytes else torch.empty(0, dtype=torch.uint8)
        shared = of_bytes.view(x.dtype).view(x.shape)
        return shared if zero_copy else shared.clone()

    def set_disk_backup_dir(self, path: str | os.PathLike[str]) -> None:
        """Raises ApplyError (HP440): there is no backup on disk."""
        raise _no_disk()


def _kind(tag: str, kept: bool, on_disk: bool, backend: str | None) -> Kind:
    """The kind on PyTorch's current device. Raises as TorchMemorySaver.region()."""
    _require_regions()
    if backend is not None and backend not in get_args(CpuBackupBackend):
        raise ValueError(f"cpu_backup_backend is 'mmap' or 'pinned', not {backend!r}")
    if backend is not None and not kept:
        raise ValueError("cpu_backup_backend requires enable_cpu_backup=True")
    if on_disk:
        raise _no_disk()
    return Kind(tag, kept, import_module("torch").cuda.current_device())


def _no_disk() -> ApplyError:
    return cannot_sleep(
        "enable_disk_backup", "the bytes of a pool go to host memory or are dropped", "use enable_cpu_backup"
    )


def _require_regions() -> None:
    """Raises SettingError (HP415) where all memory of the process is meant, not that of regions."""
    if _setting("TMS_INIT_ENABLE"):
        why = "it means all memory of the process, which takes a preloaded library; hipplan has the memory of regions"
        hint = "unset it, and make what is to be paused inside torch_memory_saver.region()"
        raise SettingError(Diagnostic("HP415", "TMS_INIT_ENABLE cannot be used here", why=why, hint=hint))


def _setting(variable: str) -> bool:
    """An environment variable that is on or off. Raises SettingError (HP415)."""
    text = os.environ.get(variable, "0")
    if text.lower() not in ("1", "true", "yes", "0", "false", "no"):
        why = f"'{text}' is not 1, true, yes, 0, false or no"
        raise SettingError(Diagnostic("HP415", f"the environment variable {variable} is wrong", why=why))
    return text.lower() in ("1", "true", "yes")
