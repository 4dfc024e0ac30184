"""Regions, pause and resume, as a program calls them."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest

from hipplan.errors import ApplyError, LayoutInUse, SettingError
from hipplan.torch_memory_saver import TorchMemorySaver
from tests.conftest import Simulator
from tests.torch_memory_saver.stand_in import Graph, Tensor, Torch

MIB = 2**20


def region_of(saver: TorchMemorySaver, tensor: Tensor) -> str:
    """The name of the region that a tensor is in; empty if there is none."""
    layout = saver._pools.layout
    assert layout is not None
    regions = {name: layout[name].address for name in layout.usage() and [pool.region for pool in layout.usage()]}
    sizes = {pool.region: pool.reserved for pool in layout.usage()}
    return next((name for name, at in regions.items() if at <= tensor.address < at + sizes[name]), "")


def mapped(saver: TorchMemorySaver) -> dict[str, int]:
    """Memory by region."""
    layout = saver._pools.layout
    return {} if layout is None else {pool.region: pool.mapped for pool in layout.usage()}


def saved(saver: TorchMemorySaver) -> int:
    layout = saver._pools.layout
    return 0 if layout is None else sum(pool.saved for pool in layout.usage())


def test_a_region_pauses_and_resumes_at_its_addresses(saver: TorchMemorySaver, torch: Torch, sim: Simulator) -> None:
    with saver.region(tag="weights", enable_cpu_backup=True):
        weights = torch.empty(3 * MIB)
    with saver.region(tag="kv_cache"):
        cache = torch.empty(5 * MIB)
    outside = torch.empty(MIB)
    sim.fill(weights.address, 7, 3 * MIB)
    assert region_of(saver, weights) == "weights.kept.0"
    assert region_of(saver, cache) == "kv_cache.0"
    assert outside.is_plain
    before = mapped(saver)

    saver.pause()
    assert mapped(saver) == {"weights.kept.0": 0, "kv_cache.0": 0}
    saver.resume()
    assert mapped(saver) == before
    assert sim.read(weights.address, 3 * MIB) == bytes([7]) * (3 * MIB)
    assert saved(saver) == 0
    sim.fill(cache.address, 8, 5 * MIB)


def test_a_tag_is_paused_alone(saver: TorchMemorySaver, torch: Torch) -> None:
    with saver.region("a", enable_cpu_backup=True):
        first = torch.empty(MIB)
    with saver.region("a"):
        second = torch.empty(MIB)
    with saver.region("b"):
        third = torch.empty(MIB)
    saver.pause("a")
    assert [name for name, size in mapped(saver).items() if size == 0] == ["a.kept.0", "a.0"]
    saver.pause()  # the rest
    saver.pause("none")
    saver.resume("b")
    assert [name for name, size in mapped(saver).items() if size == 0] == ["a.kept.0", "a.0"]
    saver.resume("a")
    saver.resume()
    assert all(mapped(saver).values())
    assert first and second and third


@pytest.mark.parametrize("tag", ["cuda_graph:llama/3 8B", "cuda_graph:llama/3.8B", "", "3", "Größe", "x" * 300])
def test_any_text_is_a_tag(tag: str, saver: TorchMemorySaver, torch: Torch) -> None:
    with saver.region(tag):
        tensor = torch.empty(MIB)
    with saver.region(tag + "?"):
        other = torch.empty(MIB)
    assert region_of(saver, tensor) != region_of(saver, other)
    saver.pause(tag)
    assert mapped(saver)[region_of(saver, tensor)] == 0
    assert mapped(saver)[region_of(saver, other)] == (0 if tag == "" else mapped(saver)[region_of(saver, other)])
    saver.resume(tag)


def test_regions_nest(saver: TorchMemorySaver, torch: Torch) -> None:
    with saver.region("outer"):
        first = torch.empty(MIB)
        with saver.region("inner", enable_cpu_backup=True):
            second = torch.empty(MIB)
            with saver.region("outer"):
                third = torch.empty(2 * MIB)
            fourth = torch.empty(2 * MIB)
        fifth = torch.empty(4 * MIB)
    after = torch.empty(MIB)
    where = [region_of(saver, tensor) for tensor in (first, second, third, fourth, fifth)]
    assert where == ["outer.0", "inner.kept.0", "outer.0", "inner.kept.0", "outer.0"]
    assert after.is_plain


def test_a_region_that_raises_is_left(saver: TorchMemorySaver, torch: Torch) -> None:
    with saver.region("outer"):
        with pytest.raises(ZeroDivisionError), saver.region("inner"):
            raise ZeroDivisionError
        assert region_of(saver, torch.empty(MIB)) == "outer.0"
    assert torch.empty(MIB).is_plain


def test_disable_is_pytorchs_own_memory(saver: TorchMemorySaver, torch: Torch) -> None:
    with saver.region("weights"):
        with saver.disable():
            plain = torch.empty(MIB)
            with saver.region("weights"):
                within = torch.empty(MIB)
        weights = torch.empty(MIB)
    with saver.disable():
        alone = torch.empty(MIB)
    assert plain.is_plain and alone.is_plain
    assert region_of(saver, within) == region_of(saver, weights) == "weights.0"
    with pytest.raises(ValueError, match="dispose_mem_pool_after_use"), saver.disable(dispose_mem_pool_after_use=False):
        pass


def test_a_pause_beside_a_thread_that_is_inside(saver: TorchMemorySaver, torch: Torch) -> None:
    """PyTorch would end the process if a MemPool went now."""
    with saver.region("kv_cache"):
        torch.empty(MIB)
    with saver.region("weights"):
        with saver.disable():
            torch.empty(MIB)
        torch.empty(MIB)
        saver.pause("kv_cache")
        with saver.cuda_graph(Graph(), tag="graph"):
            saver.resume("kv_cache")
        saver.pause("graph")
    saver.pause()
    saver.resume()
    assert not any(mapped(saver).values())


def test_a_saver_that_goes_while_a_thread_is_inside(saver: TorchMemorySaver, torch: Torch, sim: Simulator) -> None:
    other, graph = TorchMemorySaver(), Graph()
    with other.region("weights"):
        torch.empty(MIB)
    with other.cuda_graph(graph):
        torch.empty(MIB)
    with saver.region("kv_cache"):
        del other
        gc.collect()
    graph.reset()
    torch.cuda.empty_cache()


def test_each_device_has_its_own_regions(saver: TorchMemorySaver, torch: Torch, sim: Simulator) -> None:
    with saver.region("t", enable_cpu_backup=True):
        first = torch.empty(MIB)
        torch.set_device(1)
        with saver.region("t", enable_cpu_backup=True):
            second = torch.empty(MIB)
        torch.set_device(0)
        third = torch.empty(2 * MIB)
    assert [region_of(saver, tensor) for tensor in (first, second, third)] == ["t.kept.0", "t.kept.1", "t.kept.0"]
    sim.fill(second.address, 9, MIB)
    saver.pause("t")
    assert {*mapped(saver).values()} == {0}
    saver.resume("t")
    assert sim.read(second.address, MIB) == bytes([9]) * MIB


def test_threads_have_their_own_regions(saver: TorchMemorySaver, torch: Torch) -> None:
    made: dict[str, Tensor] = {}

    def work(tag: str) -> None:
        with saver.region(tag):
            made[tag] = torch.empty(MIB)

    with saver.region("main"):
        threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        mine = torch.empty(MIB)
    assert {tag: region_of(saver, tensor) for tag, tensor in made.items()} == {f"t{n}": f"t{n}.0" for n in range(8)}
    assert region_of(saver, mine) == "main.0"


def test_the_memory_of_a_graph_is_paused(saver: TorchMemorySaver, torch: Torch) -> None:
    graph, other, alone = Graph(), Graph(), Graph()
    with saver.region("weights"):  # which is left for as long
        with saver.cuda_graph(graph, tag="graph", pool=(0, 99), stream="s", capture_error_mode="relaxed"):
            inner = torch.empty(4 * MIB)
        with saver.cuda_graph(other, pool=(0, 99), tag="graph"):
            pass
        outer = torch.empty(MIB)
    with saver.cuda_graph(alone, tag="graph", pool=graph.how[0]):
        pass
    assert graph.how[1:] == ("s", "relaxed")
    assert graph.how[0] == other.how[0] == alone.how[0]
    assert (region_of(saver, inner), region_of(saver, outer)) == ("graph.0", "weights.0")
    del inner
    saver.pause("graph")  # the graph still uses the block
    saver.resume("graph")
    assert mapped(saver)["graph.0"] >= 4 * MIB
    for each in (graph, other, alone):
        each.reset()
    saver.pause("graph")
    saver.resume("graph")
    assert mapped(saver)["graph.0"] == 0


def test_who_is_inside_keeps_all_awake(saver: TorchMemorySaver, torch: Torch, sim: Simulator) -> None:
    with saver.region("weights", enable_cpu_backup=True):
        weights = torch.empty(MIB)
    sim.fill(weights.address, 5, MIB)
    with saver.region("kv_cache"):
        cache = torch.empty(MIB)
        with pytest.raises(LayoutInUse, match=r"HP409.*\n.*\n  paused now: nothing"):
            saver.pause()
    assert all(mapped(saver).values())
    assert sim.read(weights.address, MIB) == bytes([5]) * MIB
    saver.pause("kv_cache")
    with pytest.raises(ApplyError, match="HP441"), saver.region("kv_cache"):
        pass
    saver.resume()
    assert cache


def test_copies_are_kept_for_the_next_pause(saver: TorchMemorySaver, torch: Torch, sim: Simulator) -> None:
    with saver.region(enable_cpu_backup=True):
        tensor = torch.empty(MIB)
    assert saver.retain_cpu_backup is False
    saver.retain_cpu_backup = True
    saver.pause()
    saver.resume()
    assert saved(saver) > 0
    sim.runtime.arm_faults("hipHostMalloc@1+=hipErrorOutOfMemory")
    saver.pause()
    saver.retain_cpu_backup = False
    saver.resume()
    assert saved(saver) == 0
    assert tensor


def copy_of(saver: TorchMemorySaver, tensor: Any) -> memoryview | None:
    return saver._pools.host_copy(tensor.address, tensor.nbytes)


def test_a_copy_can_be_read_while_it_is_there(saver: TorchMemorySaver, torch: Torch, sim: Simulator) -> None:
    assert copy_of(saver, torch.empty(MIB)) is None  # nothing was ever in a region
    with saver.region(enable_cpu_backup=True):
        first, second = torch.empty(MIB), torch.empty(MIB)
    with saver.region("dropped"):
        dropped = torch.empty(MIB)
    sim.fill(first.address, 1, MIB)
    sim.fill(second.address, 2, MIB)
    assert copy_of(saver, first) is None
    saver.pause()
    for number, tensor in ((1, first), (2, second)):
        assert bytes(copy_of(saver, tensor) or b"") == bytes([number]) * MIB
    with pytest.raises(ApplyError, match=r"HP441.*\n.*its bytes were dropped"):
        copy_of(saver, dropped)
    assert copy_of(saver, torch.empty(MIB)) is None
    saver.retain_cpu_backup = True
    saver.resume()
    with saver.region(enable_cpu_backup=True):
        younger = torch.empty(2 * MIB)
    assert bytes(copy_of(saver, first) or b"") == bytes([1]) * MIB
    assert copy_of(saver, younger) is None  # the copy is older
    assert copy_of(saver, dropped) is None
    saver.retain_cpu_backup = False
    saver.pause()
    saver.resume()
    assert copy_of(saver, first) is None


def test_a_copy_stays_while_a_view_of_it_lives(saver: TorchMemorySaver, torch: Torch, sim: Simulator) -> None:
    with saver.region(enable_cpu_backup=True):
        tensor = torch.empty(MIB)
    sim.fill(tensor.address, 3, MIB)
    saver.pause()
    view = copy_of(saver, tensor)
    assert view is not None
    view[:1] = b"\7"  # what resume() restores
    saver.resume()
    assert saved(saver) > 0
    assert bytes(view[:2]) == sim.read(tensor.address, 2) == b"\7\3"
    sim.fill(tensor.address, 4, MIB)
    saver.pause()  # into the copy that was kept
    assert bytes(view[:2]) == b"\4\4"
    del tensor
    saver.resume()  # the view alone keeps it
    assert saved(saver) > 0 and bytes(view[:2]) == b"\4\4"
    del view
    gc.collect()
    saver.pause()
    saver.resume()
    assert saved(saver) == 0


def test_what_has_no_meaning_says_so(saver: TorchMemorySaver, caplog: pytest.LogCaptureFixture) -> None:
    saver.hook_mode = "torch"
    assert saver.hook_mode == "torch"
    with pytest.raises(ValueError, match="'preload' or 'torch', not 'other'"):
        saver.hook_mode = "other"  # type: ignore[assignment]
    saver.memory_margin_bytes = 2**30
    assert "memory_margin_bytes has no effect" in caplog.text
    assert saver.enabled is True


def test_a_backend_needs_a_backup(saver: TorchMemorySaver, torch: Torch) -> None:
    for backend in ("mmap", "pinned"):
        with pytest.raises(ValueError, match="requires enable_cpu_backup"), saver.region(cpu_backup_backend=backend):  # type: ignore[arg-type]
            pass
        with saver.region(enable_cpu_backup=True, cpu_backup_backend=backend):  # type: ignore[arg-type]
            assert region_of(saver, torch.empty(MIB)) == "default.kept.0"
    with pytest.raises(ValueError, match="'mmap' or 'pinned', not 'disk'"):
        saver.region(enable_cpu_backup=True, cpu_backup_backend="disk").__enter__()  # type: ignore[arg-type]


def test_there_is_no_backup_on_disk(saver: TorchMemorySaver) -> None:
    with pytest.raises(ApplyError, match="HP440"), saver.region(enable_disk_backup=True):
        pass
    with pytest.raises(ApplyError, match="HP440"):
        saver.set_disk_backup_dir("/tmp")


def test_all_memory_of_the_process_is_refused(saver: TorchMemorySaver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMS_INIT_ENABLE", "1")
    for call in (saver.region().__enter__, saver.cuda_graph(Graph()).__enter__, saver.pause):
        with pytest.raises(SettingError, match="TMS_INIT_ENABLE cannot be used here"):
            call()


def test_variables_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMS_RETAIN_CPU_BACKUP", "yes")
    assert TorchMemorySaver().retain_cpu_backup is True
    monkeypatch.setenv("TMS_RETAIN_CPU_BACKUP", "maybe")
    with pytest.raises(SettingError, match="'maybe' is not 1, true, yes, 0, false or no"):
        TorchMemorySaver()


def test_no_room_is_pytorchs_error_with_the_tag(saver: TorchMemorySaver, torch: Torch) -> None:
    with (
        pytest.raises(torch.cuda.OutOfMemoryError, match=r"no room in the pool 'kv_cache\.0'"),
        saver.region("kv_cache"),
    ):
        torch.empty(2**50)
