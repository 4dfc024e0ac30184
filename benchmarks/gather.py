"""An all-gather by copies over a symmetric heap, against NCCL's over the same bytes. Needs PyTorch and two GPUs.

    python benchmarks/gather.py [--runtime cuda] [--size 268435456] [--rounds 20] [--json FILE]

Each rank is a process with a GPU of its own. Each copies every other rank's part into its own buffer, all at once on
streams of their own; NCCL gathers the same parts into the same kind of buffer. Between the rounds all wait for all.
Aim: at least 0.95 of NCCL's bandwidth.
"""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
from typing import Any

from common import arguments, keep, opened, positive, table

import hipplan


def plan(size: int) -> dict[str, Any]:
    chunk = -(-size // (2 << 20)) * (2 << 20)
    part = {"device": "gpu", "size": chunk, "map": {"ranks": "node", "access": "r"}, "addresses": "symmetric"}
    part["tensors"] = {"bytes": {"dtype": "u8", "shape": [size]}}
    return {
        "hipplan": 1,
        "ranks": {},
        "devices": {"gpu": {"ordinal": "$(local_rank)"}},
        "regions": {"part": part},
        "contents": {"part.bytes": {"value": "$(rank + 1)"}},
    }


def work(rank: int, ranks: int, given: Any, folder: str, port: int, pipe: Any) -> None:
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(rank)
    store = dist.TCPStore("127.0.0.1", port, ranks, False)
    dist.init_process_group("nccl", store=store, rank=rank, world_size=ranks, device_id=torch.device("cuda", rank))
    group = hipplan.group(folder, rank, ranks, local_rank=rank)
    with hipplan.apply(plan(given.size), runtime=given.runtime, group=group, answer=False) as layout:
        parts = [torch.from_dlpack(layout.rank(other)["part.bytes"]) for other in range(ranks)]
        mine = [torch.empty(ranks * given.size, dtype=torch.uint8, device="cuda") for _ in range(2)]
        streams = [torch.cuda.Stream() for _ in range(ranks)]

        def by_copies() -> None:
            now = torch.cuda.current_stream()
            for other in range(ranks):
                at = (rank + other) % ranks  # not all from the same one at a time
                streams[other].wait_stream(now)
                with torch.cuda.stream(streams[other]):
                    mine[0][at * given.size :][: given.size].copy_(parts[at], non_blocking=True)
            for stream in streams:
                now.wait_stream(stream)

        def by_nccl() -> None:
            dist.all_gather_into_tensor(mine[1], parts[rank])

        seen: dict[str, list[float]] = {"copies": [], "nccl": []}
        for number in range(given.rounds + 5):
            for name, gather in (("copies", by_copies), ("nccl", by_nccl)):
                dist.barrier()
                torch.cuda.synchronize()
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                gather()
                end.record()
                torch.cuda.synchronize()
                if number >= 5:
                    seen[name].append(begin.elapsed_time(end))
        equal = bool(torch.equal(mine[0], mine[1]))
        right = all(bool((mine[0][n * given.size :][: given.size] == n + 1).all()) for n in range(ranks))
        parts.clear()  # else the layout cannot close
        pipe.send((seen, equal and right))
    dist.destroy_process_group()


def main() -> None:
    parser = arguments(__doc__ or "", rounds=20)
    parser.add_argument("--size", type=positive, default=256 << 20, help="bytes of each rank")
    given = parser.parse_args()
    chosen = opened(given)
    try:
        from torch.distributed import TCPStore
    except ImportError:
        print("not measured: PyTorch is not installed")
        return
    ranks = chosen.runtime.device_count()
    if chosen.kind != "cuda" or ranks < 2:
        print("not measured: it needs two GPUs, and NCCL")
        return
    store = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    given.runtime = chosen.kind
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        pipes, processes = [], []
        for rank in range(ranks):
            ours, theirs = context.Pipe()
            options = (rank, ranks, given, f"{folder}/group", store.port, theirs)
            processes.append(context.Process(target=work, args=options, daemon=True))
            processes[-1].start()
            theirs.close()
            pipes.append(ours)
        answers = [pipe.recv() for pipe in pipes]
        for process in processes:
            process.join()
    if not all(right for _, right in answers):
        raise SystemExit("the gathered bytes are not those of the ranks")
    slowest = {
        name: [max(seen[name][n] for seen, _ in answers) for n in range(given.rounds)] for name in ("copies", "nccl")
    }
    medians = {name: statistics.median(times) for name, times in slowest.items()}
    came = (ranks - 1) * given.size / 1e6
    print(f"{ranks} ranks, {given.size / 2**20:g} MiB each, the slowest of each round; medians of {given.rounds}")
    table(
        ["", "ms", "GB/s into each rank", "of NCCL's"],
        [[name, took, came / took, medians["nccl"] / took] for name, took in medians.items()],
    )
    keep(given.json, "gather", chosen, {"ranks": ranks, "size": given.size, "ms": medians})


if __name__ == "__main__":
    main()
