"""A kernel of PyTorch's on one device, over an address of memory on any device.

    python -m tests.hardware.kernel DEVICE OWNER none|r|rw|others|sealed read|write

As a program: makes memory on one device, gives another one a right (none, r, rw; as one of the `others` of a region
over both; rw until the plan seals it), lets that one read or write it with a kernel, and prints `done SUM` or
`refused`. A refused kernel ends the process's context, hence a program.
"""

from __future__ import annotations

import os
import sys
from typing import Any

MIB = 2**20


def tensor(device: int, address: int, size: int) -> Any:
    """Bytes at an address as a tensor on a device that need not own them."""
    import torch

    where = torch.device("cuda", device)
    torch.empty(1, device=where)  # the context
    storage = torch._C._construct_storage_from_data_pointer(address, where, size)
    return torch.empty(0, dtype=torch.uint8, device=where).set_(storage)


def available() -> str:
    """Empty if kernels can be run here, else why not."""
    try:
        import torch
    except ImportError:
        return "PyTorch is not installed"
    if not torch.cuda.is_available():
        return "PyTorch sees no device"
    return ""


def main() -> None:
    import torch

    import hipplan

    device, owner, right, writes = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4] == "write"
    count = max(device, owner) + 1
    plan: dict[str, Any] = {
        "hipplan": 1,
        "devices": {"gpu": {"count": count}},
        "allocations": {"memory": {"device": f"gpu.{owner}", "size": 2 * MIB}},
        "reservations": {
            "range": {
                "access": {f"gpu.{owner}": "rw"} | {f"gpu.{device}": right},
                "mappings": [{"allocation": "memory"}],
            }
        },
    }
    if right == "others":
        both = {"devices": [f"gpu.{owner}", f"gpu.{device}"], "access": {"owner": "rw", "others": "r"}, "size": 4 * MIB}
        plan = {key: plan[key] for key in ("hipplan", "devices")} | {"regions": {"range": both}}
    if right == "sealed":
        plan["reservations"]["range"] |= {"access": {"gpu.*": "rw"}, "seal": True}
        plan["contents"] = {"range[0]": {"value": 3}}
    layout = hipplan.apply(plan)
    address = layout["range"].address
    if right != "sealed":
        layout.runtime.fill(address, 3, 2 * MIB)
    view = tensor(device, address, 2 * MIB)
    try:
        if writes:
            view.add_(2)
            torch.cuda.synchronize(device)
        total = int(view.sum(dtype=torch.int64))
    except Exception as error:
        print("refused", type(error).__name__, str(error).splitlines()[0][:100], flush=True)
        os._exit(0)  # nothing can be freed through a lost context
    print("done", total, flush=True)
    del view
    layout.close()


if __name__ == "__main__":
    main()
