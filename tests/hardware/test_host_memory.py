"""Memory that moves to the host and keeps working at its addresses: kernels, graphs, cuBLAS and atomics give the same
bits before, there and after. Without a GPU: what of it the driver and the CPU do."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import numpy
import pytest

import hipplan
from hipplan.errors import ApplyError, LeakError, MachineError
from hipplan.layout.layout import Layout
from tests.hardware.machine import MIB, Machine, pattern

SIZE = 16 * MIB


@pytest.fixture
def tier(machine: Machine) -> Machine:
    """A machine whose driver makes memory of the host."""
    if machine.is_amd_before(7, 1):
        pytest.skip("memory of the host needs HIP 7.1")
    machine.new_descriptors = machine.new_descriptors or machine.simulated  # the file of its host memory stays open
    return machine


@pytest.fixture
def layout(tier: Machine) -> Iterator[Layout]:
    plan = {
        "hipplan": 1,
        "devices": {"gpu": {"count": 1}},
        "regions": {
            "cache": {"device": "gpu.0", "size": SIZE, "chunk": 4 * MIB},
            "mixed": {"devices": ["gpu.0", "host"], "sizes": [SIZE // 2, SIZE // 2], "chunk": 4 * MIB},
            "table": {"device": "host", "size": 4 * MIB},
        },
    }
    with hipplan.apply(plan, runtime=tier.wanted) as made:
        yield made


def test_bytes_stay_when_memory_moves_to_the_host_and_back(layout: Layout, tier: Machine) -> None:
    content, base = pattern(SIZE, 1), layout["cache"].address
    layout.write("cache", numpy.frombuffer(content, dtype=numpy.uint8))
    for device, there in (("host", ("host",)), ("gpu.0", ("gpu.0",))):
        layout.remap("cache", device=device)
        assert (layout["cache"].address, layout["cache"].devices) == (base, there)
        assert layout.read("cache").tobytes() == content
        assert layout.drift() == []
    layout.remap("cache", part="4MiB..12MiB", device="host")
    assert layout.read("cache").tobytes() == content
    assert layout.drift() == []
    if not tier.simulated:  # the driver's view of who made the memory, not ours
        assert tier.read_by(0, base + 4 * MIB, 4096) == content[4 * MIB : 4 * MIB + 4096]


def test_it_sleeps_on_the_host_and_what_is_kept_is_used_again(layout: Layout, tier: Machine) -> None:
    content, base = pattern(SIZE, 5), layout["cache"].address
    layout.write("cache", numpy.frombuffer(content, dtype=numpy.uint8))
    for _ in range(3):
        layout.sleep("cache", to="mapped")
        assert layout.asleep == {"cache": "mapped"} and layout.retained == 0
        assert (layout["cache"].address, layout["cache"].devices) == (base, ("host",))
        assert layout.read("cache").tobytes() == content
        assert layout.drift() == []
        layout.wake(retain=True)
        assert layout.retained == SIZE
        assert layout.read("cache").tobytes() == content
    layout.remap("cache", device="host")
    layout.remap("cache", device="gpu.0")
    assert (layout.retained, layout.drift()) == (0, [])
    assert layout.read("cache").tobytes() == content


def test_growth_overflows_to_the_host(tier: Machine) -> None:
    """Where the device says that it is full: what it says is decided above the driver."""
    region = {"device": "gpu.0", "size": 4 * MIB, "chunk": 4 * MIB, "reserve": 64 * MIB, "overflow": "host"}
    plan = {"hipplan": 1, "devices": {"gpu": {"count": 1}}, "regions": {"cache": region}}
    with hipplan.apply(plan, runtime=tier.wanted) as layout:
        content = pattern(4 * MIB, 7)
        layout.write("cache", numpy.frombuffer(content, dtype=numpy.uint8))
        tier.runtime.arm_faults("hipMemCreate@1=hipErrorOutOfMemory")
        layout.grow("cache", by=8 * MIB)
        tier.disarm()
        assert layout.usage().regions[0].chunks == ("gpu.0", "host", "host")
        layout.fill("cache[1]", 5)
        assert layout.read("cache")[: 4 * MIB].tobytes() == content and (layout.read("cache[1]") == 5).all()
        layout.remap("cache", device="gpu.0")
        assert layout.read("cache")[: 4 * MIB].tobytes() == content and (layout.read("cache[1]") == 5).all()
        layout.shrink("cache", to=4 * MIB)
        assert layout.drift() == []


Act = Callable[[Layout], Any]
MOVES: dict[str, tuple[Act, Act]] = {
    "to the host": (lambda layout: None, lambda layout: layout.remap("cache", device="host")),
    "back": (lambda layout: layout.remap("cache", device="host"), lambda layout: layout.remap("cache", device="gpu.0")),
    "a part": (lambda layout: None, lambda layout: layout.remap("cache", part="2MiB..", device="host")),
    "sleep": (lambda layout: None, lambda layout: layout.sleep("cache", to="mapped")),
    "wake": (lambda layout: layout.sleep("cache", to="mapped"), lambda layout: layout.wake()),
}
"""What comes before, and what calls fail in."""


@pytest.mark.in_parts
@pytest.mark.parametrize("what", MOVES)
def test_whichever_call_fails_the_bytes_are_where_they_were(
    what: str, tier: Machine, record_property: Callable[[str, object], None]
) -> None:
    """Each call fails once, above the driver; what could not be released is released here."""
    plan = {"hipplan": 1, "devices": {"gpu": {"count": 1}}, "regions": {"cache": {"size": 4 * MIB, "chunk": 2 * MIB}}}
    with hipplan.apply(plan, runtime=tier.wanted) as layout:
        faults = fail_each_call(layout, tier, *MOVES[what])
    record_property("calls of moves to the host that failed", faults)
    assert faults > 10


def fail_each_call(layout: Layout, tier: Machine, first: Act, act: Act) -> int:
    """How many calls have failed."""
    content, faults = pattern(4 * MIB, "content"), 0
    layout.write("cache", numpy.frombuffer(content, dtype=numpy.uint8))
    for number in count(1):
        first(layout)
        before = layout.program
        tier.runtime.arm_faults(f"*@{number}=hipErrorOutOfMemory")
        failed = without_leaks(tier, lambda: act(layout))
        came = tier.runtime.faults_fired() > 0
        tier.disarm()
        faults += came
        assert not failed or layout.program is before
        assert layout.read("cache").tobytes() == content
        assert layout.drift() == []
        without_leaks(tier, layout.wake)
        without_leaks(tier, lambda: layout.remap("cache", device="gpu.0"))
        assert layout.read("cache").tobytes() == content
        if not came:
            break
    return faults


def without_leaks(machine: Machine, act: Callable[[], Any]) -> bool:
    """Whether an act failed, with nothing changed. What could not be released is reported, and released here."""
    try:
        act()
    except LeakError as leaks:
        machine.disarm()
        machine.free_retired(leaks.undone.failures)
    except ApplyError as error:
        assert error.exit_code == 4, error
        return True
    return False


def test_a_release_without_such_memory_refuses_it(machine: Machine) -> None:
    if not machine.is_amd_before(7, 1):
        pytest.skip("this release has memory of the host")
    plan = {"hipplan": 1, "regions": {"cache": {"device": "gpu.0", "size": SIZE, "chunk": 4 * MIB}}}
    with hipplan.apply({**plan, "devices": {"gpu": {"count": 1}}}, runtime=machine.wanted) as layout:
        for move in (lambda: layout.remap("cache", device="host"), lambda: layout.sleep("cache", to="mapped")):
            with pytest.raises(MachineError, match=r"HP309.*allocations on the host need HIP 7\.1"):
                move()
        assert (layout.asleep, layout.drift()) == ({}, [])


def test_the_cpu_reads_and_writes_what_is_on_the_host(layout: Layout) -> None:
    tail = layout["mixed[2]"]  # the first chunk on the host
    view = numpy.from_dlpack(tail.on("host"))
    view[:] = 9
    assert (layout.read("mixed[2]") == 9).all()
    table = numpy.asarray(layout["table"])
    table[:4] = (1, 2, 3, 4)
    assert layout.read("table")[:4].tolist() == [1, 2, 3, 4]
    with pytest.raises(BufferError, match="cannot be viewed from 'host'"):
        layout["mixed"].on("host")


@pytest.fixture
def torch_(gpu: Machine) -> Iterator[Any]:
    import torch

    yield torch
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()


def everywhere(layout: Layout, name: str, answer: Callable[[], Any]) -> list[Any]:
    """The answers while memory is on the GPU, on the host, half on the host and back."""
    half = layout[name].size // 2
    out = [answer()]
    layout.remap(name, device="host")
    out.append(answer())
    layout.remap(name, device="gpu.0")
    layout.remap(name, part=(half, None), device="host")
    out.append(answer())
    layout.remap(name, device="gpu.0")
    out.append(answer())
    return out


def all_the_same(torch: Any, answers: list[Any]) -> bool:
    return all(torch.equal(answers[0], other) for other in answers[1:])


def test_matmul_and_atomics_give_the_same_bits(torch_: Any, layout: Layout) -> None:
    torch = torch_
    torch.manual_seed(1)
    weight = torch.from_dlpack(layout["cache"].view("bf16", (2048, 4096)))
    weight.copy_(torch.randn(2048, 4096, device="cuda").bfloat16())
    x = torch.randn(64, 4096, device="cuda").bfloat16()
    assert all_the_same(torch, everywhere(layout, "cache", lambda: (x @ weight.T).clone()))

    counts = torch.from_dlpack(layout["cache"].view("i32", (SIZE // 4,)))
    places = torch.randint(0, SIZE // 4, (1 << 20,), device="cuda")
    ones = torch.ones(1 << 20, dtype=torch.int32, device="cuda")

    def added() -> Any:
        counts.zero_()
        counts.index_add_(0, places, ones)
        return counts.clone()

    answers = everywhere(layout, "cache", added)
    assert all_the_same(torch, answers)
    assert int(answers[0].sum()) == 1 << 20


def test_attention_over_a_cache_whose_tail_is_on_the_host(torch_: Any, layout: Layout) -> None:
    torch = torch_
    torch.manual_seed(2)
    heads, tokens, width = 8, SIZE // 2 // (8 * 64 * 2), 64
    cache = torch.from_dlpack(layout["mixed"].view("bf16", (2, heads, tokens, width)))
    cache.copy_(torch.randn(2, heads, tokens, width, device="cuda").bfloat16())
    query = torch.randn(1, heads, 1, width, device="cuda").bfloat16()

    def attended() -> Any:
        keys, values = cache[0].unsqueeze(0), cache[1].unsqueeze(0)
        return torch.nn.functional.scaled_dot_product_attention(query, keys, values).clone()

    with_tail = attended()
    layout.remap("mixed", device="gpu.0")
    assert torch.equal(with_tail, attended())


def test_a_captured_step_replays_while_its_memory_is_on_the_host(torch_: Any, layout: Layout) -> None:
    torch = torch_
    torch.manual_seed(3)
    weight = torch.from_dlpack(layout["cache"].view("f32", (1024, 4096)))
    weight.copy_(torch.randn(1024, 4096, device="cuda"))
    x, out = torch.randn(16, 4096, device="cuda"), torch.empty(16, 1024, device="cuda")
    torch.matmul(x, weight.T, out=out)  # cuBLAS makes its workspace
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.matmul(x, weight.T, out=out)

    def replayed() -> Any:
        out.zero_()
        graph.replay()
        return out.clone()

    assert all_the_same(torch, everywhere(layout, "cache", replayed))


def test_a_models_captured_decode_step_is_the_same_while_its_weights_are_on_the_host(
    torch_: Any, tier: Machine
) -> None:
    transformers = pytest.importorskip("transformers")
    torch = torch_
    torch.manual_seed(4)
    config = transformers.LlamaConfig(
        hidden_size=512, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4,
        vocab_size=1000,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).bfloat16().to("cuda:0").eval()
    shapes = {f"p{i}": {"dtype": "bf16", "shape": list(p.shape)} for i, p in enumerate(model.parameters())}
    plan = {"hipplan": 1, "regions": {"weights": {"device": "gpu.0", "chunk": "4MiB", "tensors": shapes}}}
    with hipplan.apply(plan, runtime=tier.wanted) as layout:
        answers = decoded(torch, model, layout)
        del model
        gc.collect()
    assert all_the_same(torch, answers)
    assert float(answers[0].abs().sum()) > 0


def decoded(torch: Any, model: Any, layout: Layout) -> list[Any]:
    """The logits of a captured step of a model whose weights lie in a region: on the GPU, on the host, half on each,
    and on the GPU again."""
    for i, parameter in enumerate(model.parameters()):
        inside = torch.from_dlpack(layout[f"weights.p{i}"])
        inside.copy_(parameter.data)
        parameter.data = inside
    tokens, position = torch.tensor([[7]], device="cuda:0"), torch.tensor([[0]], device="cuda:0")
    with torch.no_grad():
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(2):
                model(tokens, position_ids=position, use_cache=False)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            logits = model(tokens, position_ids=position, use_cache=False).logits

    def step() -> Any:
        logits.zero_()
        graph.replay()
        return logits.clone()

    half = len(layout.program.regions["weights"].chunks) // 2 * 4 * MIB
    answers = [step()]
    layout.remap("weights", device="host")
    answers.append(step())
    layout.remap("weights", part=(0, half), device="gpu.0")
    answers.append(step())
    layout.remap("weights", device="gpu.0")
    return [*answers, step()]


def test_nccl_reduces_what_is_on_the_host(torch_: Any, pair: Machine) -> None:
    """Buffers of two GPUs; atomics of both on one region that lies on the host."""
    torch = torch_
    if pair.is_amd_before(7, 1):
        pytest.skip("memory of the host needs HIP 7.1")
    pair.wavers(1024 * MIB)  # NCCL keeps its buffers on both devices as long as the process
    regions = {f"part{number}": {"device": f"gpu.{number}", "size": SIZE} for number in (0, 1)}
    regions["counts"] = {"device": "gpu.0", "size": SIZE, "access": {"gpu.*": "rw"}}
    plan = {"hipplan": 1, "devices": {"gpu": {"count": 2}}, "regions": regions}
    with hipplan.apply(plan, runtime=pair.wanted) as layout:
        parts = [torch.from_dlpack(layout[name].view("f32", (SIZE // 4,))) for name in ("part0", "part1")]

        def reduced() -> Any:
            for number, part in enumerate(parts):
                part.fill_(number + 1)
            torch.cuda.nccl.all_reduce(parts)
            for device in (0, 1):
                torch.cuda.synchronize(device)
            return [part.clone() for part in parts]

        before = reduced()
        assert all(float(part[0]) == float(part[-1]) == 3.0 for part in before)
        layout.sleep(["part0", "part1"], to="mapped")
        assert all(torch.equal(now, was) for now, was in zip(reduced(), before, strict=True))
        layout.wake()
        assert all(torch.equal(now, was) for now, was in zip(reduced(), before, strict=True))

        layout.remap("counts", device="host")
        views = [torch.from_dlpack(layout["counts"].on(f"gpu.{number}").view("i32", (SIZE // 4,))) for number in (0, 1)]
        views[0].zero_()
        torch.cuda.synchronize(0)
        for number, view in enumerate(views):
            places = torch.randint(0, SIZE // 4, (1 << 20,), device=f"cuda:{number}")
            view.index_add_(0, places, torch.ones(1 << 20, dtype=torch.int32, device=f"cuda:{number}"))
        for device in (0, 1):
            torch.cuda.synchronize(device)
        assert int(layout.read("counts").view(numpy.int32).sum()) == 2 << 20
        parts.clear()  # reduced() has them, too
        del views, view
