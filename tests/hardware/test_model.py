"""A model of transformers, with random weights, whose parameters lie in a plan's memory: bit by bit the same model."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import hipplan
from tests.conftest import ROOT, not_under_tsan
from tests.hardware import kernel
from tests.hardware.busy import make_model
from tests.hardware.machine import Machine

pytestmark = not_under_tsan

STEPS = 32
"""Tokens that are generated."""
CACHED = 64
"""Tokens that the static cache has room for."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of about 400 MB, and the plan that hipplan writes for it."""
    pytest.importorskip("transformers")
    where = tmp_path_factory.mktemp("checkpoint")
    make_model(where / "model")
    plan = where / "plan.yaml"
    files = where / "model" / "model.safetensors"
    command = [sys.executable, "-m", "hipplan", "import", "safetensors", str(files), "-o", str(plan)]
    subprocess.run(command, cwd=ROOT, check=True)
    return where


@pytest.fixture
def gpu_torch(gpu: Machine) -> Iterator[Any]:
    if why := kernel.available():
        pytest.skip(why)
    import torch

    yield torch
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()


def answers(torch: Any, model: Any) -> tuple[Any, Any]:
    """(logits, generated tokens) for fixed tokens."""
    tokens = torch.arange(1, 129, device="cuda:0").reshape(2, 64)
    with torch.no_grad():
        logits = model(tokens).logits
    mask = torch.ones_like(tokens)
    generated = model.generate(tokens, attention_mask=mask, max_new_tokens=STEPS, min_new_tokens=STEPS, do_sample=False)
    return logits.cpu(), generated.cpu()


def in_memory_of(torch: Any, layout: Any, region: str, folder: Path) -> Any:
    """The model of the checkpoint, whose parameters are the layout's tensors."""
    from transformers import AutoConfig, LlamaForCausalLM
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    config = AutoConfig.from_pretrained(folder / "model")
    with torch.device("meta"):
        model = LlamaForCausalLM(config).to(torch.bfloat16)
    missing, unexpected = model.load_state_dict(layout.tensors(region), assign=True, strict=False)
    assert (missing, unexpected) == ([], [])
    model.model.rotary_emb = LlamaRotaryEmbedding(config).to("cuda:0")
    return model.eval()


def same(torch: Any, first: tuple[Any, Any], second: tuple[Any, Any]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


@pytest.fixture
def expected(gpu_torch: Any, folder: Path) -> Iterator[tuple[Any, Any]]:
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(folder / "model", dtype=gpu_torch.bfloat16).to("cuda:0").eval()
    answered = answers(gpu_torch, model)
    del model
    yield answered


def test_a_model_in_a_plans_memory_is_the_same_model(
    gpu_torch: Any, folder: Path, expected: tuple[Any, Any], machine: Machine
) -> None:
    with hipplan.apply(folder / "plan.yaml", runtime=machine.wanted) as layout:
        (region,) = layout.program.regions
        model = in_memory_of(gpu_torch, layout, region, folder)
        base = layout[region].address
        assert all(base <= p.data_ptr() < base + layout[region].size for p in model.parameters())
        assert same(gpu_torch, answers(gpu_torch, model), expected)
        layout.sleep(region, force=True)
        layout.wake()
        assert same(gpu_torch, answers(gpu_torch, model), expected)
        del model


ATTACHED = """
import sys
import hipplan, torch
from pathlib import Path
from tests.hardware.test_model import answers, in_memory_of

folder = Path(sys.argv[1])
with hipplan.attach("model", runtime=sys.argv[2]) as layout:
    (region,) = layout.program.regions
    model = in_memory_of(torch, layout, region, folder)
    torch.save(answers(torch, model), folder / "attached.pt")
    del model
"""


def test_another_process_attaches_the_same_model(
    gpu_torch: Any, folder: Path, expected: tuple[Any, Any], machine: Machine, tmp_path: Path
) -> None:
    sockets = tmp_path / "sockets"
    sockets.mkdir(mode=0o700)
    environment = os.environ | {"HIPPLAN_RUNTIME": machine.wanted, "HIPPLAN_SOCKETS": str(sockets)}
    command = [sys.executable, "-m", "hipplan"]
    up = [*command, "up", str(folder / "plan.yaml"), "--name", "model", "--quiet"]
    subprocess.run(up, cwd=ROOT, env=environment, check=True)
    try:
        attached = [sys.executable, "-c", ATTACHED, str(folder), machine.wanted]
        subprocess.run(attached, cwd=ROOT, env=environment, check=True, timeout=300)
    finally:
        down = [*command, "down", "model", "--force", "--quiet"]
        subprocess.run(down, cwd=ROOT, env=environment, check=True)
    assert same(gpu_torch, gpu_torch.load(folder / "attached.pt"), expected)


def test_a_model_is_loaded_into_a_pool_by_all_threads(
    gpu_torch: Any, folder: Path, expected: tuple[Any, Any], machine: Machine
) -> None:
    from transformers import LlamaForCausalLM

    plan: dict[str, Any] = {"hipplan": 1, "regions": {"scratch": {"size": "2GiB"}}}
    with hipplan.apply(plan, runtime=machine.wanted) as layout:
        base, size = layout["scratch"].address, layout["scratch"].size
        with layout.torch_pool("scratch", threads="all"):
            model = LlamaForCausalLM.from_pretrained(folder / "model", dtype=gpu_torch.bfloat16, device_map="cuda:0")
            model.train()
            model(gpu_torch.arange(1, 65, device="cuda:0").reshape(1, 64)).logits.float().sum().backward()
        tensors = [tensor for p in model.parameters() for tensor in (p, p.grad) if tensor is not None]
        assert len(tensors) > len([*model.parameters()])
        assert all(base <= tensor.data_ptr() < base + size for tensor in tensors)
        assert same(gpu_torch, answers(gpu_torch, model.eval()), expected)
        del model, tensors
        gc.collect()
        gpu_torch._C._cuda_clearCublasWorkspaces()  # made inside, too


def greedy(torch: Any, model: Any, cache: Any, replays: bool, between: Callable[[int], None] = lambda _: None) -> Any:
    """Tokens that a model generates one by one into a static cache: each step is a call, or a replay of one capture.

    between: called with the number of each step before it.
    """
    token = torch.tensor([[11]], device="cuda:0")
    position = torch.zeros(1, 1, dtype=torch.long, device="cuda:0")
    slots = torch.arange(CACHED, device="cuda:0")

    def step() -> None:
        seen = (slots <= position).view(1, 1, 1, CACHED)
        given = {"attention_mask": seen, "position_ids": position, "past_key_values": cache, "use_cache": True}
        token.copy_(model(token, **given).logits[:, -1].argmax(-1, keepdim=True))
        position.add_(1)

    with torch.no_grad():
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):  # cuBLAS makes its workspaces outside of the capture
            for _ in range(2):
                step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        if replays:
            with torch.cuda.graph(graph):
                step()
        cache.reset()
        token.fill_(11)
        position.zero_()
        tokens = []
        for number in range(STEPS):
            between(number)
            if replays:
                graph.replay()
            else:
                step()
            tokens.append(int(token))
    return tokens


def static_cache(torch: Any, config: Any) -> Any:
    from transformers import StaticCache

    cache = StaticCache(config=config, max_cache_len=CACHED)
    head = config.hidden_size // config.num_attention_heads
    cache.early_initialization(1, config.num_key_value_heads, head, torch.bfloat16, torch.device("cuda:0"))
    return cache


def test_a_captured_step_with_its_cache_in_a_region_replays_after_a_sleep(
    gpu_torch: Any, folder: Path, machine: Machine
) -> None:
    """Weights and cache lie in the plan's memory, and sleep in the middle of the answer."""
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(folder / "model", dtype=gpu_torch.bfloat16).to("cuda:0").eval()
    usual = greedy(gpu_torch, model, static_cache(gpu_torch, model.config), replays=False)
    del model
    plan = folder / "with-cache.yaml"
    document = yaml.safe_load((folder / "plan.yaml").read_text())
    document["regions"]["kv"] = {"size": "64MiB"}
    plan.write_text(yaml.safe_dump(document))
    with hipplan.apply(plan, runtime=machine.wanted) as layout:
        (region,) = (name for name in layout.program.regions if name != "kv")
        model = in_memory_of(gpu_torch, layout, region, folder)
        with layout.torch_pool("kv"):
            cache = static_cache(gpu_torch, model.config)
        base, size = layout["kv"].address, layout["kv"].size
        assert all(base <= layer.keys.data_ptr() < base + size for layer in cache.layers)

        def sleep_in_the_middle(number: int) -> None:
            if number == STEPS // 2:
                gpu_torch.cuda.synchronize()
                layout.sleep([region, "kv"], force=True)
                layout.wake()

        assert greedy(gpu_torch, model, cache, replays=True, between=sleep_in_the_middle) == usual
        del model, cache
        gc.collect()
        gpu_torch._C._cuda_clearCublasWorkspaces()
