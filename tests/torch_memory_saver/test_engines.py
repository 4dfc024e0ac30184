"""What engines call, from their published sources: the names, the arguments and what comes of them on the simulator.

SGLang: python/sglang/srt/utils/torch_memory_saver_adapter.py of 1373e4f547e8. vLLM: the protocol MemAllocator
(vllm/device_allocator/__init__.py of e5337d96c143) and its backend of sleep mode (sleep_mode_backend.py of
0327d59d7a06). No engine runs here.
"""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

import hipplan
from hipplan.layout.layout import Layout
from hipplan.torch_memory_saver import TorchMemorySaver, configure_subprocess, folder, install
from tests.conftest import Simulator
from tests.torch_memory_saver.stand_in import Graph, Tensor, Torch

MIB = 2**20
OF_0_0_10 = {
    "region": {"tag": "default", "enable_cpu_backup": False, "enable_disk_backup": False, "cpu_backup_backend": None},
    "cuda_graph": {
        "cuda_graph": inspect.Parameter.empty, "pool": None, "stream": None, "capture_error_mode": "global",
        "tag": "default", "enable_cpu_backup": False, "cpu_backup_backend": None,
    },
    "disable": {"dispose_mem_pool_after_use": True},
    "pause": {"tag": None},
    "resume": {"tag": None},
    "get_cpu_backup": {"x": inspect.Parameter.empty, "zero_copy": False},
    "set_disk_backup_dir": {"path": inspect.Parameter.empty},
}  # fmt: skip
"""The arguments of torch_memory_saver 0.0.10, in their order, with their defaults."""


@pytest.mark.parametrize("name", OF_0_0_10)
def test_the_arguments_are_those_of_the_package(name: str) -> None:
    parameters = list(inspect.signature(getattr(TorchMemorySaver, name)).parameters.values())[1:]
    assert [(each.name, each.default) for each in parameters] == list(OF_0_0_10[name].items())
    assert all(each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for each in parameters)


def test_properties_are_those_of_the_package() -> None:
    settable = {
        name: value.fset is not None for name, value in vars(TorchMemorySaver).items() if isinstance(value, property)
    }
    assert settable == {"enabled": False, "hook_mode": True, "memory_margin_bytes": True, "retain_cpu_backup": True}


def python(code: str, **variables: str) -> str:
    """What a program prints in a process of its own."""
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables
    ended = subprocess.run([sys.executable, "-c", code], env=surroundings, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


IMPORTED = """
import torch_memory_saver
from torch_memory_saver import TorchMemorySaver, configure_subprocess, torch_memory_saver as saver
from torch_memory_saver.entrypoint import TorchMemorySaver as same
from torch_memory_saver.hooks.base import HookMode
from torch_memory_saver.hooks.mode_preload import configure_subprocess as also
from torch_memory_saver.utils import change_env, get_binary_path_from_package, is_xpu
from torch_memory_saver.testing_utils import empty_cache, get_and_print_gpu_memory, get_device
assert torch_memory_saver.torch_memory_saver is saver and same is TorchMemorySaver and also is configure_subprocess
with change_env("A_NAME", "b"):
    import os
    assert os.environ["A_NAME"] == "b"
assert "A_NAME" not in os.environ
assert get_binary_path_from_package("torch_memory_saver_hook_mode_preload").is_file() and not is_xpu()
print(type(saver).__module__, get_device())
"""
HERE = "hipplan.torch_memory_saver.saver cuda\n"


def test_it_is_imported_by_its_own_name() -> None:
    assert python(f"from hipplan.torch_memory_saver import install\ninstall()\ninstall()\n{IMPORTED}") == HERE
    on_path = python("import runpy; runpy.run_module('hipplan.torch_memory_saver', run_name='__main__')").strip()
    assert python(IMPORTED, PYTHONPATH=on_path) == HERE


def test_what_is_preloaded_changes_nothing() -> None:
    ask = "from torch_memory_saver.utils import get_binary_path_from_package as of; print(of('any'))"
    library = python(ask, PYTHONPATH=str(folder())).strip()
    assert python("print(1)", LD_PRELOAD=library) == "1\n"


def test_programs_that_are_started_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for before in ("", "/of/the/user"):
        monkeypatch.setenv("PYTHONPATH", before) if before else monkeypatch.delenv("PYTHONPATH", raising=False)
        with configure_subprocess():
            assert python(IMPORTED, PYTHONPATH=os.environ["PYTHONPATH"]) == HERE
        assert os.environ.get("PYTHONPATH", "") == before


SPAWNS = """
import multiprocessing
import hipplan.torch_memory_saver

if __name__ == "__main__":
    hipplan.torch_memory_saver.install()
    process = multiprocessing.get_context("spawn").Process(target=exec, args=({code!r}, {{}}))
    process.start()
    process.join()
    raise SystemExit(process.exitcode)
"""


def test_processes_that_multiprocessing_spawns_have_it(tmp_path: Any) -> None:
    (script := tmp_path / "spawns.py").write_text(SPAWNS.format(code=IMPORTED))
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, HERE), ended.stderr


def test_another_one_that_is_imported_already_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "torch_memory_saver.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    __import__("torch_memory_saver")
    with pytest.raises(ImportError, match=r"torch_memory_saver\.py is imported already"):
        install()
    monkeypatch.delitem(sys.modules, "torch_memory_saver")


def test_sglang_releases_and_restores(saver: TorchMemorySaver, torch: Torch, sim: Simulator) -> None:
    """The tags and the order of SGLang's release_memory_occupation and resume_memory_occupation."""
    assert saver.enabled
    with saver.region(tag="weights", enable_cpu_backup=True):
        weights = torch.empty(4 * MIB)
    with saver.region(tag="kv_cache", enable_cpu_backup=False):
        cache = torch.empty(8 * MIB)
    graphs = [Graph(), Graph()]
    for graph in graphs:
        with saver.cuda_graph(tag="cuda_graph", cuda_graph=graph, pool=(0, 77), stream=None):
            torch.empty(MIB)
    sim.fill(weights.address, 6, 4 * MIB)
    layout = saver._pools.layout
    assert layout is not None
    taken = sum(pool.mapped for pool in layout.usage())
    for tag in ("kv_cache", "weights", "cuda_graph"):
        saver.pause(tag=tag)
    assert sum(pool.mapped for pool in layout.usage()) == 0
    for tag in ("cuda_graph", "weights", "kv_cache"):
        saver.resume(tag=tag)
    assert sum(pool.mapped for pool in layout.usage()) == taken
    assert sim.read(weights.address, 4 * MIB) == bytes([6]) * (4 * MIB)
    assert cache


POOL = {"device": "gpu", "size": 0, "reserve": "64MiB", "chunk": "2MiB"}
PLAN = {
    "hipplan": 1,
    "devices": {"gpu": {"ordinal": 0}},
    "regions": {name: {**POOL, "torch": {"tag": name}} for name in ("weights", "kv_cache", "default")},
}


class MemAllocator:
    """vLLM's protocol, by calls of a layout: that these are enough for it."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.tags = {pool.tag for pool in layout.usage()}

    def use_memory_pool(self, tag: str | None = None) -> AbstractContextManager[Any]:
        return self.layout.torch_pool(tag or "default")

    def sleep(self, offload_tags: tuple[str, ...] | str | None = None) -> None:
        offloaded = (
            {"default"}
            if offload_tags is None
            else {offload_tags}
            if isinstance(offload_tags, str)
            else {*offload_tags}
        )
        self.layout.sleep(sorted(offloaded & self.tags))
        self.layout.sleep(sorted(self.tags - offloaded), to="drop")

    def discard(self, tags: tuple[str, ...] | str) -> None:
        self.layout.sleep(tags, to="drop")

    def wake_up(self, tags: list[str] | None = None) -> None:
        self.layout.wake(sorted(self.tags) if tags is None else tags)

    def get_current_usage(self) -> int:
        return sum(pool.mapped for pool in self.layout.usage())


@pytest.fixture
def allocator(sim: Simulator, torch: Torch) -> Iterator[MemAllocator]:
    with hipplan.apply(PLAN, runtime="sim") as layout:
        yield MemAllocator(layout)


def two_tensors(allocator: MemAllocator, torch: Torch, sim: Simulator) -> tuple[Tensor, Tensor]:
    with allocator.use_memory_pool("weights"):
        weights = torch.empty(4 * MIB)
    with allocator.use_memory_pool(tag="kv_cache"):
        cache = torch.empty(8 * MIB)
    sim.fill(weights.address, 5, 4 * MIB)
    return weights, cache


def test_vllm_sleeps_at_level_1_and_wakes_tag_by_tag(allocator: MemAllocator, torch: Torch, sim: Simulator) -> None:
    weights, cache = two_tensors(allocator, torch, sim)
    taken = allocator.get_current_usage()
    allocator.sleep(offload_tags=("weights",))
    assert allocator.get_current_usage() == 0
    allocator.wake_up(["weights"])
    assert allocator.get_current_usage() == 4 * MIB
    assert sim.read(weights.address, 4 * MIB) == bytes([5]) * (4 * MIB)
    allocator.wake_up(["kv_cache"])
    allocator.wake_up()
    assert allocator.get_current_usage() == taken
    sim.fill(cache.address, 1, 8 * MIB)


def test_vllm_sleeps_at_level_2_and_discards(allocator: MemAllocator, torch: Torch, sim: Simulator) -> None:
    weights, cache = two_tensors(allocator, torch, sim)
    allocator.discard(("kv_cache",))
    assert allocator.get_current_usage() == 4 * MIB
    assert sim.read(weights.address, MIB) == bytes([5]) * MIB
    allocator.sleep(offload_tags=())
    assert (allocator.get_current_usage(), allocator.layout.usage().as_dict()["tags"]["weights"]["saved"]) == (0, 0)
    allocator.wake_up(tags=None)
    assert allocator.get_current_usage() == 12 * MIB
    assert cache
