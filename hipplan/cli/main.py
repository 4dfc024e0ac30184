"""The command: the list of verbs, and the one place where errors become messages and exit codes.

Only the module of the requested verb is imported, so that the command starts quickly in editors and hooks.
"""

from __future__ import annotations

import errno
import gc
import io
import os
import sys
from importlib import import_module

from hipplan.cli import without_gpu
from hipplan.cli.arguments import Parser, WrongUsage, print_failure
from hipplan.cli.habits import for_verb
from hipplan.cli.streams import whole
from hipplan.errors import ExitCode, HipplanError, driver_failure, suggest

VERBS = {
    "validate": "check plans and experiments; with --machine, also check that the machine can hold them",
    "preview": "show the steps of a plan, its sizes and how much is padding",
    "draw": "draw a plan, or what changes between two, as SVG or as a page with zoom and search",
    "lock": "lock what a plan becomes on a machine, for apply --locked",
    "apply": "apply a plan, all or nothing; hold it until ^C; tear it down",
    "up": "fill a plan's memory once and keep it, for other processes to attach to",
    "ps": "list what `up` keeps: plan, state, memory, who is attached",
    "logs": "show the log of a holder, also of one that has failed",
    "attach": "run a command whose hipplan.attach() finds what `up` keeps",
    "replace": "fill another plan beside what `up` keeps, and switch to it",
    "sleep": "free the device memory of what `up` keeps for a while; its bytes survive",
    "wake": "restore the memory of what sleeps",
    "down": "end a holder and free what `up` keeps",
    "verify": "read back a layout that another process holds; show what differs",
    "replay": "show a recorded apply, step by step",
    "import": "write a plan for a checkpoint, from the headers of its files",
    "doctor": "say what to know of this machine before the first apply, and what to do",
    "machine": "measure this machine as a profile; list, show and compare profiles",
    "fmt": "format plans and experiments; comments are kept",
    "explain": "explain a diagnostic: its cause, its fix, an example",
    "schema": "print the JSON Schema of plans, machine profiles or experiments",
    "sim": "run any HIP program on the simulator",
    "config": "print where hipplan.h and its library are, for the build of a C program",
    "bench": "measure copies between all devices, or a plan's own memory",
    "experiment": "run an experiment on cells of a plan; resume, report, compare and pack its results",
    "completion": "print a shell script that completes these verbs and their options",
}
"""Verb -> what it does. Each is the module of its name in hipplan.cli, with declare(parser) and run(given)."""

GROUPS = {
    "look at plans": ("validate", "preview", "draw", "fmt", "lock", "import"),
    "apply a plan": ("apply", "verify", "replay", "bench", "experiment"),
    "keep memory for other processes": ("up", "ps", "logs", "attach", "replace", "sleep", "wake", "down"),
    "machines": ("machine", "doctor", "sim", "config"),
    "help": ("explain", "schema", "completion"),
}
"""Heading of `hipplan --help` -> its verbs."""

ABOUT = "One YAML plan for a GPU experiment's memory: checked without a GPU, applied all or nothing."
_EXIT_CODES = """Exit codes: 0 done, 1 a bug, 2 usage or invalid plan, 3 machine or runtime cannot hold it,
4 failed and rolled back, 5 something leaked, 6 something differs, 7 a group in doubt,
129/130/143 interrupted."""


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of writing to standard output when its file or disk is full."""
_SHORT = {
    errno.ENOMEM: "memory: raise `ulimit -v`, or free some",
    errno.EMFILE: "file descriptors: raise `ulimit -n`",
    errno.ENFILE: "file descriptors: the whole system has none left",
}
"""Resources that hipplan itself may lack, for any plan."""
_UNLOADED = {errno.ENOMEM: "failed to map segment from shared object", errno.EMFILE: "Too many open files"}
"""The dynamic linker's messages for these errors."""
_NO_TEMPORARY = "No usable temporary directory found"
"""The message of Python's tempfile."""


def main() -> None:
    """Run one command and end the process."""
    whole()
    code = run(sys.argv[1:])
    gc.freeze()  # at exit Python looks for garbage several times, which takes 30 ms, and nothing there needs it
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a name with characters that the terminal lacks must not fail
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            code = _run(arguments)
        except SystemExit as ended:  # from argparse, for --help or wrong usage
            code = ended.code if isinstance(ended.code, int) else ExitCode.OK
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except MemoryError:
        return _too_little(errno.ENOMEM)
    except OSError as error:
        if error.errno in _SHORT:
            return _too_little(error.errno)
        if _NO_TEMPORARY in str(error):
            text = "no folder for temporary files can be written to: set TMPDIR, or free some space"
            print(f"hipplan: error: {text}", file=sys.stderr)
            return ExitCode.MACHINE
        if error.errno == errno.ENOENT and not _stands_somewhere():
            print("hipplan: error: the working folder no longer exists: change to another one", file=sys.stderr)
            return ExitCode.INVALID
        if error.errno not in _FULL or error.filename is not None:
            return _bug()
        sys.stdout = None
        print(f"hipplan: error: the output cannot be written: {error.strerror}", file=sys.stderr)
        return ExitCode.INVALID
    except Exception as error:
        lacks = [number for number, sign in _UNLOADED.items() if isinstance(error, ImportError) and sign in str(error)]
        return _too_little(lacks[0]) if lacks else _bug()


def _too_little(number: int) -> int:
    print(f"hipplan: error: this process has run out of {_SHORT[number]}", file=sys.stderr)
    return ExitCode.MACHINE


def _stands_somewhere() -> bool:
    try:
        return bool(os.getcwd())  # noqa: PTH109
    except OSError:
        return False


def _bug() -> int:
    import traceback

    traceback.print_exc()
    print(
        "\nThis is a bug in hipplan. Please report the lines above, the plan and the output of `hipplan machine`.",
        file=sys.stderr,
    )
    return ExitCode.BUG


def _run(arguments: list[str]) -> int:
    verb, rest = (arguments[0], arguments[1:]) if arguments else ("--help", [])
    if verb == "help":  # `help VERB`, as in git
        verb, rest = (rest[0], ["--help"]) if rest else ("--help", [])
    if verb in ("--help", "-h"):
        print(_help())
        return ExitCode.OK if arguments else ExitCode.INVALID
    if verb == "--version":
        from hipplan.cli.version import version_text

        print(version_text())
        return ExitCode.OK
    if verb not in VERBS:
        what = "option" if verb.startswith("-") else "verb"
        hint = for_verb(verb) or suggest(verb, (*VERBS, "--help", "--version")) or "see hipplan --help"
        print(f"hipplan: error: there is no {what} {verb!r}; {hint}", file=sys.stderr)
        return ExitCode.INVALID
    module = import_module(f"hipplan.cli.{verb}")
    parser = Parser(f"hipplan {verb}", str(module.__doc__).partition(": ")[2])
    module.declare(parser)
    given = parser.read(rest)
    try:
        return without_gpu.again(arguments, given) if without_gpu.wanted(given) else int(module.run(given))
    except WrongUsage as wrong:
        parser.error(str(wrong))
    except Exception as error:
        failure = _failure(error)
        if failure is None:
            raise
        print_failure(failure, getattr(given, "format", "text") == "json")
        return failure.exit_code


def _failure(error: Exception) -> HipplanError | None:
    """The error as a HipplanError, if it is one or a failed driver call outside of an apply (a query for a report)."""
    core = sys.modules.get("hipplan._core")  # not imported: most verbs do not need the compiled part
    if core is not None and isinstance(error, core.HipError):
        return driver_failure(error)
    return error if isinstance(error, HipplanError) else None


def _help() -> str:
    width = max(map(len, VERBS))
    verbs = "\n\n".join(
        "\n".join([f"{heading}:", *(f"  {verb:<{width}}  {VERBS[verb]}" for verb in group)])
        for heading, group in GROUPS.items()
    )
    usage = "usage: hipplan VERB ...    hipplan help VERB    hipplan --version"
    return f"{usage}\n\n{ABOUT}\n\n{verbs}\n\n{_EXIT_CODES}"
