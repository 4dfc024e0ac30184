"""A process of test_addresses.py that works between its layouts.

    python -m tests.hardware.busy FOLDER PAIR RANK ROUNDS WORK

It is one of two ranks. In each round it works; then it attaches to the holder "weights", applies plan.yaml with
plan.lock, lets that layout sleep and wake, applies exact.yaml, and applies ranks.yaml together with the other rank. It
writes JSON into FOLDER.

WORK: memory: random hipMalloc and hipFree; torch: random tensors of PyTorch; model: loads the model in FOLDER/model,
lets it generate, and keeps it in every second round or frees it first.

    python -m tests.hardware.busy FOLDER model      # makes FOLDER/model, with random weights
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import random
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hipplan
from hipplan.machines.runtimes import choose
from tests.hardware.machine import MIB, Machine

FILLED = {"weights": 7, "small": 8}
"""Region -> the byte that is everywhere in it."""
RESERVED = {"weights": 2, "more": 512, "small": 2, "middle": 32, "large": 2048, "within": 2, "behind": 22, "other": 2}
"""Region -> MiB of addresses."""
SIZES = (512, 4096, MIB, 2 * MIB, 20 * MIB, 60 * MIB)
STEPS = 60
"""Random allocations and frees in a round."""
EXACT = {"within": 0x6A06_0060_0000, "behind": 0x6A06_0080_0000, "other": 0x6A07_01E0_0000}
"""Range -> the address that its plan demands, within a step of 32 MiB."""
WAIT_S = 120.0


def make_model(folder: Path) -> None:
    """About 400 MB in files."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=1024,
        intermediate_size=4096,
        num_hidden_layers=8,
        num_attention_heads=16,
        num_key_value_heads=8,
        vocab_size=32000,
        pad_token_id=0,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


class Memory:
    """Random sizes, made and freed in a random order."""

    def __init__(self, machine: Machine, device: int, seed: int) -> None:
        self.machine, self.device = machine, device
        self._random = random.Random(seed)
        self._made: list[tuple[Any, int]] = []

    def work(self, keeps: bool) -> None:
        """keeps: whether something stays until the next round."""
        for _ in range(STEPS):
            if self._made and self._random.random() < 0.45:
                self._free(self._random.randrange(len(self._made)))
            else:
                size = self._random.choice(SIZES)
                self._made.append((self._new(size), size))
        if not keeps:
            self.end()

    def end(self) -> None:
        """Frees everything."""
        while self._made:
            self._free(-1)

    def ranges(self) -> list[tuple[int, int]]:
        """(address, size) of all memory that the work has now."""
        return [(memory.value or 0, size) for memory, size in self._made]

    def _new(self, size: int) -> Any:
        memory = ctypes.c_void_p()
        self.machine.call("hipSetDevice", self.device)
        self.machine.call("hipMalloc", ctypes.byref(memory), ctypes.c_size_t(size))
        return memory

    def _free(self, place: int) -> None:
        self.machine.call("hipFree", self._made.pop(place)[0])


class Torch(Memory):
    """The same with PyTorch's allocator."""

    def end(self) -> None:
        import torch

        super().end()
        gc.collect()
        torch.cuda.empty_cache()

    def ranges(self) -> list[tuple[int, int]]:
        import torch

        return [(segment["address"], segment["total_size"]) for segment in torch.cuda.memory_snapshot()]

    def _new(self, size: int) -> Any:
        import torch

        return torch.empty(size, dtype=torch.uint8, device=f"cuda:{self.device}")

    def _free(self, place: int) -> None:
        self._made.pop(place)


class Model(Torch):
    """A model is loaded, and generates some tokens."""

    def __init__(self, machine: Machine, device: int, seed: int, folder: Path) -> None:
        super().__init__(machine, device, seed)
        self._folder = folder
        self._model: Any = None

    def work(self, keeps: bool) -> None:
        import torch
        from transformers import LlamaForCausalLM

        where = torch.device("cuda", self.device)
        self._model = LlamaForCausalLM.from_pretrained(self._folder / "model", dtype=torch.bfloat16).to(where)
        tokens = torch.randint(1, 32000, (2, 64), device=where)
        self._model.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=8, do_sample=False)
        torch.cuda.synchronize(where)
        if not keeps:
            self.end()

    def end(self) -> None:
        self._model = None
        super().end()


class Rounds:
    """What is tried in each round."""

    def __init__(self, worker: Memory, folder: Path, pair: int, rank: int) -> None:
        self._worker, self._folder = worker, folder
        self._wanted = worker.machine.wanted
        self._group = hipplan.group(str(folder / f"group-{pair}"), rank, 2, local_rank=rank)
        self.places: dict[str, list[dict[str, int]]] = {}
        self.good = 0
        self.errors: list[str] = []
        """What went wrong, and in which round."""
        self.taken: list[str] = []
        """Addresses that the driver had given to the work. They were had once the work was over."""

    def go(self, number: int) -> None:
        before = len(self.errors)
        attempts = {
            "attached": self._attached,
            "locked": self._locked,
            "exact": self._exact,
            "together": self._together,
        }
        for name, attempt in attempts.items():
            try:
                try:
                    self._try(name, attempt)
                except hipplan.ApplyError as error:
                    if not (taken := self._taken(str(error))):
                        raise
                    self.taken.append(f"round {number}, {name}: {taken}")
                    self._worker.end()
                    self._try(name, attempt)
            except Exception as error:
                self.errors.append(f"round {number}, {name}: {type(error).__name__}: {error}")
        self.good += len(self.errors) == before

    def _taken(self, error: str) -> str:
        """What the work has at the address of an HP404; empty: nothing."""
        found = re.search(r"HP404\]: '(\w+)' cannot be at (0x[0-9a-f]+)", error)
        if found is None:
            return ""
        name, begin = found[1], int(found[2], 16)
        end = begin + RESERVED[name] * MIB
        there = [f"{at:#x}+{size}" for at, size in self._worker.ranges() if at < end and begin < at + size]
        return f"{name} at {begin:#x}: {', '.join(there)}" if there else ""

    def _try(self, name: str, attempt: Callable[[], Iterator[Any]]) -> None:
        for layout in attempt():
            addresses = {region: layout[region].address for region in layout.program.regions}
            self.places.setdefault(name, []).append(addresses)
            assert layout.drift() == []
            for region in FILLED.keys() & addresses.keys():
                assert set(layout.read(region).ravel().tolist()) == {FILLED[region]}, region

    def _attached(self) -> Iterator[Any]:
        with hipplan.attach("weights", runtime=self._wanted) as layout:
            yield layout

    def _locked(self) -> Iterator[Any]:
        plan, lock = self._folder / "plan.yaml", self._folder / "plan.lock"
        with hipplan.apply(plan, runtime=self._wanted, locked=lock) as layout:
            yield layout
            layout.sleep([*layout.program.regions])
            layout.wake()
            yield layout

    def _exact(self) -> Iterator[Any]:
        with hipplan.apply(self._folder / "exact.yaml", runtime=self._wanted) as layout:
            assert {name: layout[name].address for name in EXACT} == EXACT
            yield layout

    def _together(self) -> Iterator[Any]:
        plan, group = self._folder / "ranks.yaml", self._group
        with hipplan.apply(plan, runtime=self._wanted, group=group, timeout=WAIT_S) as layout:
            yield layout
            layout.barrier(WAIT_S)


def main() -> None:
    folder = Path(sys.argv[1])
    os.environ |= {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    if sys.argv[2] == "model":
        make_model(folder / "model")
        return
    pair, rank, rounds = map(int, sys.argv[2:5])
    machine = Machine(choose(os.environ.get("HIPPLAN_RUNTIME", "sim")))
    device, seed = rank % machine.linked, 2 * pair + rank
    kinds = {"memory": Memory, "torch": Torch, "model": lambda *arguments: Model(*arguments, folder)}
    worker: Memory = kinds[sys.argv[5]](machine, device, seed)
    tried = Rounds(worker, folder, pair, rank)
    for number in range(rounds):
        worker.work(keeps=number % 2 == 1)
        tried.go(number)
    worker.end()
    report = {"good": tried.good, "errors": tried.errors, "taken": tried.taken, "places": tried.places}
    (folder / f"{pair}.{rank}.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main()
