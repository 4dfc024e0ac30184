"""A model of transformers, with random weights, whose parameters lie in a plan's memory: bit by bit the same model."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hipplan
from tests.conftest import ROOT, not_under_tsan
from tests.hardware import kernel
from tests.hardware.busy import make_model
from tests.hardware.machine import Machine

pytestmark = not_under_tsan

STEPS = 32
"""Tokens that are generated."""


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
