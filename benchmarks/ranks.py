"""What agreeing costs: ranks of one host that apply together, against the same ranks that apply each by itself.

    python benchmarks/ranks.py [--runtime cuda] [--ranks 4] [--rounds 20] [--json FILE]

Each rank is a process with a device of its own, or the simulator; all begin at the same time, and what counts is the
slowest. Over a folder, and, where PyTorch is installed, over a TCPStore, as torchrun has it. Aim: 10 ms at four ranks.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import tempfile
import time
from typing import Any

from common import arguments, keep, opened, positive, table

PLAN = {"hipplan": 1, "regions": {"part": {"size": "64MiB", "chunk": "2MiB"}}}


def work(rank: int, size: int, runtime: str, folder: str, port: int, pipe: Any, together: Any) -> None:
    """Applies when told to, alone or with the others, and says how long it took."""
    if runtime == "cuda":
        os.environ["CUDA_VISIBLE_DEVICES"] = str(rank)
    import hipplan

    groups = {"folder": hipplan.group(folder, rank, size)}
    if port:
        from torch.distributed import TCPStore

        groups["TCPStore"] = hipplan.group(TCPStore("127.0.0.1", port, None, False), rank, size)
    plan = hipplan.load(PLAN)
    while (which := pipe.recv()) != "end":
        together.wait()
        began = time.perf_counter()
        layout = hipplan.apply(plan, runtime=runtime, group=groups.get(which), answer=False)
        took = time.perf_counter() - began
        layout.close()
        pipe.send(took)


def main() -> None:
    parser = arguments(__doc__ or "", rounds=20)
    parser.add_argument("--ranks", type=positive, default=4)
    given = parser.parse_args()
    chosen = opened(given)
    if chosen.kind == "cuda":
        given.ranks = min(given.ranks, chosen.runtime.device_count())
    names, store = ["alone", "folder"], None
    try:
        from torch.distributed import TCPStore

        store = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
        names.append("TCPStore")
    except ImportError:
        print("not measured: TCPStore: PyTorch is not installed")
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        together = context.Barrier(given.ranks)
        pipes, processes = [], []
        for rank in range(given.ranks):
            ours, theirs = context.Pipe()
            port = 0 if store is None else store.port
            arguments_ = (rank, given.ranks, chosen.kind, f"{folder}/group", port, theirs, together)
            processes.append(context.Process(target=work, args=arguments_, daemon=True))
            processes[-1].start()
            pipes.append(ours)
        slowest: dict[str, list[float]] = {name: [] for name in names}
        for number in range(given.rounds + 2):
            for name in names:
                for pipe in pipes:
                    pipe.send(name)
                took = max(pipe.recv() for pipe in pipes)
                if number >= 2:
                    slowest[name].append(took * 1e3)
        for pipe in pipes:
            pipe.send("end")
        for process in processes:
            process.join()
    alone = statistics.median(slowest["alone"])
    medians = {name: statistics.median(seen) for name, seen in slowest.items()}
    print(f"{given.ranks} ranks, the slowest of each round; ms, medians of {given.rounds}")
    table(
        ["", "ms", "more than alone", "ratio"],
        [[name, took, took - alone, took / alone] for name, took in medians.items()],
    )
    keep(given.json, "ranks", chosen, {"ranks": given.ranks, "ms": medians})


if __name__ == "__main__":
    main()
