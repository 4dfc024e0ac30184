"""A process that has imported all of hipplan and run none of it, and forks for each command (tests/started.py)."""

from __future__ import annotations

import gc
import json
import os
import socket
import struct
import sys
from time import process_time
from typing import Any

from tests.forked import STREAMS, end, fork_what_commands_start, set_stream, stream
from tests.started import Ended


def serve(connection: socket.socket) -> bool:
    """Forks for each request until there are no more. True in a fork, which is to run the command."""
    start_s = process_time()  # of Python and the imports
    while True:
        head, descriptors, _, _ = socket.recv_fds(connection, 8, 3)
        if not head:
            return False
        text = b""
        while len(text) < int.from_bytes(head, "big"):
            text += connection.recv(1 << 20)
        request: dict[str, Any] = json.loads(text)
        child = os.fork()
        if child == 0:
            connection.close()
            _become(request, descriptors)
            return True
        for descriptor in descriptors:
            os.close(descriptor)
        _, status, used = os.wait4(child, 0)
        ended = (os.waitstatus_to_exitcode(status), start_s + used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
        connection.sendall(struct.pack(Ended.FORMAT, *ended))


def _become(request: dict[str, Any], descriptors: list[int]) -> None:
    for number, name in enumerate(STREAMS):
        if number in request["open"]:
            descriptor = descriptors.pop(0)
            os.dup2(descriptor, number)
            os.close(descriptor)
            set_stream(name, stream(number, name, getattr(sys, name)))
        else:
            os.close(number)
            set_stream(name, None)
    os.environ.clear()
    os.environ.update(request["variables"])
    os.chdir(request["cwd"])
    sys.argv = ["hipplan", *request["arguments"]]


def main() -> None:
    import tests.everything  # noqa: F401

    fork_what_commands_start()
    gc.freeze()  # what is shared stays shared
    from hipplan.cli import command

    if serve(socket.socket(fileno=int(sys.argv[1]))):
        try:
            command()
        except SystemExit as code:
            end(code)


if __name__ == "__main__":
    main()
