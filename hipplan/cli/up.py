"""hipplan up: fill a plan's memory once, and keep it in a holder process to which other processes attach.

It returns when all memory is filled; the holder runs in the background, without a terminal, until `hipplan down`.
`hipplan ps` shows it, Python's hipplan.attach(NAME) and `hipplan attach NAME -- COMMAND` use it.
--foreground is for service managers: this process is the holder, and notifies systemd when all memory is filled
(Type=notify).
Exit code: 0 it is filled, 2 invalid plan, or an object that cannot be held, 3 the machine cannot hold it, 4 failed and
rolled back, or the name is taken, 5 an object could not be freed, 129, 130 and 143 interrupted. After 0 the holder is
there, after any other exit code it is not.

Examples:
  hipplan up weights.yaml
  hipplan up plan.yaml --name weights
  hipplan up plan.yaml --name weights --locked plan.lock
  hipplan up plan.yaml --name scratch --access rw
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import stat
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from hipplan.cli.arguments import Parser, WrongUsage, format_option, not_empty, plan_file, quiet_option, source_of
from hipplan.cli.held import arguments_of, filler_command
from hipplan.cli.interrupts import Interrupted, Interrupts
from hipplan.cli.variables import load_plan, plan_options
from hipplan.errors import ExitCode, HipplanError
from hipplan.files import strict_json
from hipplan.processes.command import this_command
from hipplan.show.colours import show

if TYPE_CHECKING:
    from hipplan.holders.names import Name


_KILLING_SIGNAL = 3
"""The signal to `up` that kills a holder which does not end; the first two are passed on."""


def declare(parser: Parser) -> None:
    plan_file(parser)
    about = "what the holder is called (default: the plan's name)"
    parser.add_argument("--name", metavar="NAME", type=not_empty, help=about)
    about = "r: attached processes only read; rw: they may write everything. Default: the plan's attached: keys"
    parser.add_argument("--access", choices=("r", "rw"), help=about)
    about = "a file that `hipplan lock` wrote: apply exactly that, with the same addresses, or fail"
    parser.add_argument("--locked", metavar="LOCK", type=not_empty, help=about)
    parser.add_argument(
        "--no-wait", action="store_true", help="return while it fills; `hipplan ps` shows how far it is"
    )
    parser.add_argument("--foreground", action="store_true", help="be the holder, until it is taken down")
    parser.add_argument("--filler", type=int, help=argparse.SUPPRESS)  # a holder starts the filler with this option
    parser.add_argument("--starter", type=int, help=argparse.SUPPRESS)  # the holder reports there that it is ready
    plan_options(parser)
    quiet_option(parser)
    format_option(parser)


def run(given: Namespace) -> int:
    from hipplan.holders.names import is_name, why_no_name

    for option, descriptor in (("--filler", given.filler), ("--starter", given.starter)):
        if descriptor is not None and not _is_open(descriptor):
            raise WrongUsage(f"{option}: hipplan itself starts a process so")
    if given.filler is not None:
        from hipplan.cli.fill import run as fill

        return fill(given)
    if given.foreground and given.no_wait:
        raise WrongUsage("--foreground is the holder itself: leave --no-wait out")
    if given.name is None:
        given.name = _name_of_plan(given)
    elif not is_name(given.name):
        raise WrongUsage(f"--name: {why_no_name(given.name)}")
    return _run_holder(given) if given.foreground or given.starter is not None else _start(given)


def _name_of_plan(given: Namespace) -> str:
    """The plan's own name, as that of its holder. Raises WrongUsage: it has none, or holders cannot have it."""
    from hipplan.holders.names import is_name

    if given.file == "-":
        raise WrongUsage("a plan from standard input needs --name")
    name = load_plan(source_of(given.file), given).plan.name
    if not name:
        raise WrongUsage("the plan has no name: give its holder one with --name")
    if not is_name(name):
        raise WrongUsage(f"a holder cannot be called {name!r} as the plan is: give it a name with --name")
    return name


def _is_open(descriptor: int) -> bool:
    """Whether the descriptor is a socket or pipe, as made by the process that started this one."""
    try:
        mode = os.fstat(descriptor).st_mode
    except (OSError, OverflowError):
        return False
    return stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode)


def _start(given: Namespace) -> int:
    """Start the holder, which outlives this process, and wait until everything is filled."""
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    with open(read_end, "rb", buffering=0) as ready, Interrupts(lambda: "", answer="") as interrupts:  # noqa: PTH123
        os.set_blocking(read_end, False)
        with open(write_end, "wb"):  # noqa: PTH123
            arguments = [*arguments_of(given), "--starter", str(write_end), *["--no-wait"] * given.no_wait]
            command = this_command("up", arguments)
            holder = subprocess.Popen(command, pass_fds=(write_end,), start_new_session=True)
        try:
            while (outcome := ready.read(1)) is None:
                interrupts.check()
                interrupts.wait_until_readable(read_end)
        except Interrupted as interrupted:
            _end(holder, interrupts)
            print(f"{given.name}: interrupted before it was filled", file=sys.stderr)
            return interrupted.exit_code
        if outcome:
            interrupts.end_with(ExitCode.OK)  # the holder is up
    return _show(given, holder) if outcome else _failed(holder)


def _end(holder: subprocess.Popen[bytes], interrupts: Interrupts) -> None:
    """Have the holder roll back and end. Each further signal asks again, and the third one kills it."""
    ended = os.pidfd_open(holder.pid)
    try:
        count = 0
        while holder.poll() is None:
            if interrupts.count > count:
                count = interrupts.count
                holder.send_signal(signal.SIGTERM if count < _KILLING_SIGNAL else signal.SIGKILL)
            interrupts.wait_until_readable(ended)
    finally:
        os.close(ended)


def _failed(holder: subprocess.Popen[bytes]) -> int:
    """The exit code of a holder that has ended."""
    code = holder.wait()
    if code < 0:
        print(f"hipplan up: error: the holder was ended by signal {-code}", file=sys.stderr)
    return code if code >= 0 else ExitCode.ROLLED_BACK


def _show(given: Namespace, holder: subprocess.Popen[bytes]) -> int:
    """Print the status of the holder, which is ready."""
    from hipplan.cli.held import print_status
    from hipplan.holders.requests import status

    try:
        holder_status = status(given.name)
    except HipplanError as error:
        if holder.poll() is not None:
            return _failed(holder)
        show(error.diagnostics)  # it was stopped, or its name was given up, just now: it was ready
        holder_status = {"name": given.name, "pid": holder.pid, "state": "ready"}
    holder.returncode = 0  # it keeps running after this process; this avoids subprocess's warning
    if given.format == "json":
        print(strict_json.document(None, **holder_status))
    elif not given.quiet and "generations" in holder_status:
        print_status(holder_status)
    return ExitCode.OK


def _run_holder(given: Namespace) -> int:
    from hipplan.files.open_files import make_room
    from hipplan.holders.clients import CLIENTS_MAX
    from hipplan.holders.command_line import CommandLine
    from hipplan.holders.holder import Holder
    from hipplan.holders.names import Name

    command_line = CommandLine(arguments_of(given), os.getcwd(), os.environ)  # noqa: PTH109
    name, access = Name(given.name), given.access or "plan"
    with contextlib.ExitStack() as stack:
        with contextlib.ExitStack() as undo:
            undo.callback(name.close, keep_log=given.no_wait)
            make_room(CLIENTS_MAX)
            if given.starter is None:
                streams: Sequence[int] = (0, 1, 2)
                holder = Holder(name, filler_command, access, _notify)
            else:
                streams, ready = stack.enter_context(_in_background(name, given))
                holder = Holder(name, filler_command, access, ready, None if given.no_wait else streams[2])
            undo.pop_all()  # the holder closes its name itself
        return holder.run(command_line, streams)


@contextlib.contextmanager
def _in_background(name: Name, given: Namespace) -> Iterator[tuple[Sequence[int], Callable[[], None]]]:
    """The filler uses the starter's standard streams until everything is filled; the holder writes to its log.

    An error that the holder itself ends with before that is reported to the starter, too."""
    from hipplan.holders.names import open_log

    name.log, log = open_log(name.name)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    streams = [null, log, log] if given.no_wait else [os.dup(number) for number in range(3)]
    for own, other in ((0, null), (1, log), (2, log)):
        os.dup2(other, own)
    waits = True
    os.chdir("/")  # otherwise the file system of the working folder could not be unmounted

    def ready() -> None:
        nonlocal waits
        waits = False
        with contextlib.suppress(OSError):  # the process that started it has ended
            os.write(given.starter, b"1")
        for descriptor in {given.starter, null, log, *streams}:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    os.set_inheritable(given.starter, False)
    if given.no_wait:
        os.write(given.starter, b"1")
    try:
        yield streams, ready
    except BaseException:
        if waits:
            os.dup2(streams[2], 2)
        raise


def _notify() -> None:
    """Tell systemd that the service is ready."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
            to.sendto(b"READY=1", f"\0{address[1:]}" if address[0] == "@" else address)
