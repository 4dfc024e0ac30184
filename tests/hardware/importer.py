"""The other process of test_sharing: receives a descriptor, maps the memory by a plan, checks it, changes it.

    python -m tests.hardware.importer SOCKET-DESCRIPTOR OWNER DEVICE SIZE

OWNER is the device that has the memory, DEVICE the one that uses it here.
"""

from __future__ import annotations

import os
import socket
import sys

import hipplan
from hipplan.machines.runtimes import choose
from tests.hardware.machine import Machine, pattern


def main() -> None:
    owner, device, size = (int(text) for text in sys.argv[2:])
    with socket.socket(fileno=int(sys.argv[1])) as line:
        _, (descriptor,), _, _ = socket.recv_fds(line, 1, 1)
        names = dict.fromkeys([f"gpu.{owner}", f"gpu.{device}"], "rw")
        plan = {
            "hipplan": 1,
            "devices": {"gpu": {"count": max(owner, device) + 1}},
            "allocations": {
                "given": {"device": f"gpu.{owner}", "size": size, "shareable": "posix_fd", "bind": "given"}
            },
            "reservations": {"here": {"access": names, "mappings": [{"allocation": "given"}]}},
        }
        machine = Machine(choose(None))
        with hipplan.apply(plan, bind={"given": descriptor}) as layout:
            os.close(descriptor)
            address = layout["here"].address
            assert machine.read_by(device, address, size) == pattern(size, "from the first")
            machine.write_by(device, address, pattern(size, "from the second"))
            line.sendall(b"+")
            line.recv(1)  # the first has looked
    print("imported")


if __name__ == "__main__":
    main()
