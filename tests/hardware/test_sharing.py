"""Memory that two processes share: exported as a descriptor, sent over a Unix socket, mapped by the other."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import hipplan
from tests.hardware.machine import MIB, Machine, pattern

ROOT = Path(__file__).parents[2]
SIZE = 8 * MIB


@pytest.mark.parametrize("device", [0, 1], ids=["on one device", "on two devices"])
def test_data_goes_both_ways(device: int, machine: Machine) -> None:
    """device: the one that uses the memory of device 0 in the other process."""
    if device and (machine.count < 2 or not machine.runtime.can_access_peer(0, 1)):
        pytest.skip("needs two linked devices")
    if machine.simulated:
        pytest.skip("simulated devices of two processes are two machines")
    plan: dict[str, Any] = {
        "hipplan": 1,
        "devices": {"gpu": {"count": 1}},
        "allocations": {"shared": {"device": "gpu.0", "size": SIZE, "shareable": "posix_fd"}},
        "reservations": {"range": {"access": {"gpu.0": "rw"}, "mappings": [{"allocation": "shared"}]}},
    }
    with hipplan.apply(plan, runtime=machine.wanted) as layout:
        address = layout["range"].address
        machine.write_by(0, address, pattern(SIZE, "from the first"))
        own, peer = socket.socketpair()
        with contextlib.closing(own):
            with contextlib.closing(peer):
                command = [sys.executable, "-m", "tests.hardware.importer", str(peer.fileno()), "0", str(device)]
                other = subprocess.Popen(
                    [*command, str(SIZE)], cwd=ROOT, pass_fds=[peer.fileno()], stderr=subprocess.PIPE, text=True
                )
            descriptor = layout.export("shared")
            socket.send_fds(own, [b"."], [descriptor])
            os.close(descriptor)
            own.settimeout(120)
            answer = own.recv(1)
            if answer == b"+":
                assert machine.read_by(0, address, SIZE) == pattern(SIZE, "from the second")
                own.sendall(b".")
            _, errors = other.communicate(timeout=600)
        assert other.returncode == 0, errors
        assert answer == b"+"
