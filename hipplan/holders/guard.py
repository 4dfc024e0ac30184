"""The lock of a holder's name: a socket without a file, which is free again as soon as its process has ended.

Files can be removed and folders replaced while a holder runs; this socket stays, and the holder serves there, too. It
is one for each user and name in a network namespace. A process of another user may have it: then it is in doubt.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from hipplan.errors import Diagnostic, HeldError
from hipplan.processes.connections import Connection, Late, OtherUser, connect, new_socket, peer
from hipplan.processes.folders import ONLY
from hipplan.processes.listener import QUEUE
from hipplan.processes.process import is_ending, is_stopped

KILLED_S = 10.0
"""How long a killed process may take to end: the kernel frees its memory first."""
_BUSY_S = 5.0
_LISTENS = "00010000"
"""The flags in /proc/net/unix of a socket that accepts connections."""


class Silent(HeldError):
    """A holder that gives no sign of life. (HP455)"""

    def __init__(self, name: str, why: str, number: int = 0) -> None:
        """number: of its process; 0 if unknown."""
        hint = f"hipplan down {name} --force ends it"
        if is_stopped(number):
            why, hint = f"{why}: process {number} is stopped", f"kill -CONT {number} lets it go on; {hint}"
        super().__init__(Diagnostic("HP455", f"the holder '{name}' does not answer", why=why, hint=hint))


def claim(name: str) -> socket.socket:
    """Take the lock of a name: a socket that accepts connections. Waits for a holder that was just killed.

    Raises HeldError: the name has a holder (HP451), or a process of another user has its lock (HP456); OSError.
    """
    deadline = time.monotonic() + KILLED_S
    while True:
        link = new_socket()
        try:
            link.bind(_address(name))
            link.listen(QUEUE)
            return link
        except OSError as error:
            link.close()
            if error.errno != errno.EADDRINUSE:
                raise
        wait_for_end(name, reach(name), deadline)


def wait_for_end(name: str, owner: Connection | None, deadline: float) -> None:
    """Wait a moment for the end of the process that owns a name. owner: a connection to it; None if it accepts none.

    Raises HeldError (HP451): it has not been killed, or does not end before the deadline.
    """
    if owner is not None:
        number = peer(owner.link)[0]
        owner.close()
        if not is_ending(number):
            raise already_exists(name)
    if time.monotonic() > deadline:
        raise already_exists(name)
    time.sleep(0.01)


def already_exists(name: str) -> HeldError:
    hint = f"choose another name, or: hipplan down {name}, hipplan replace {name} PLAN"
    return HeldError(Diagnostic("HP451", f"a holder called '{name}' already exists", hint=hint))


def reach(name: str) -> Connection | None:
    """A connection to the process that has the lock of a name; None if none has it. As connected()."""
    return connected(name, _address(name))


def connected(name: str, address: str) -> Connection | None:
    """A connection to the socket at an address; None if no process listens there. name: for errors.

    Raises Silent: it accepts no connection; HeldError (HP456): it belongs to another user.
    """
    try:
        return Connection(connect(address, time.monotonic() + _BUSY_S))
    except Late:
        raise Silent(name, f"it accepted no connection for {_BUSY_S:g} s") from None
    except OtherUser as other:
        why = f"process {other.process} of user {other.user} has taken this name"
        raise in_doubt(name, why, "choose another name") from None
    except OSError:
        return None


def in_doubt(name: str, why: str, hint: str) -> HeldError:
    summary = (
        f"whether there is a holder '{name}' is not certain" if name else "there may be holders that are not shown"
    )
    return HeldError(Diagnostic("HP456", summary, why=why, hint=hint))


def claimed() -> Iterator[str]:
    """The names whose lock a process has, of this user or of another one that uses such a name."""
    prefix = "@" + _address("")[1:]
    with contextlib.suppress(OSError):  # a sandbox may hide it: then only files lead to holders
        for line in Path("/proc/net/unix").read_text(errors="replace").splitlines():
            fields = line.split(maxsplit=7)
            if len(fields) == 8 and fields[3] == _LISTENS and fields[7].startswith(prefix):
                yield fields[7].removeprefix(prefix)


def _address(name: str) -> str:
    only, user = os.environ.get(ONLY), os.geteuid()
    if not only:
        return f"\0hipplan-held-{user}--{name}"
    import hashlib  # slow to import, and seldom needed

    path = Path(os.path.realpath(Path(only).parent), Path(only).name)  # a link in its place would lead elsewhere
    scope = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    return f"\0hipplan-held-{user}-{scope}-{name}"
