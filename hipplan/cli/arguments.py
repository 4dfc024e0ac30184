"""The shared parts of the command line: a parser with hints, and options that several verbs have.

A verb is a module of hipplan.cli with `declare(parser)` and `run(given) -> exit code`; main.VERBS names it.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import IO, Any, NoReturn

from hipplan.cli.habits import for_option
from hipplan.errors import Diagnostic, HipplanError, PlanError, printable, suggest
from hipplan.show.colours import show


class WrongUsage(Exception):
    """Wrong arguments that the parser cannot detect: exit 2."""


class _Help(argparse.RawDescriptionHelpFormatter):
    """A fixed width: asking for the terminal's would import shutil, and with it all compression modules."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=100)


class Parser(argparse.ArgumentParser):
    """argparse, with options anywhere between the arguments, and "did you mean" for those that do not exist."""

    def __init__(self, program: str, about: str) -> None:
        """about: what the verb does; its last part, from a line `Examples:` on, is at the end of the help."""
        about, heading, examples = about.partition("\nExamples:\n")
        epilog = f"examples:\n{examples.rstrip()}" if heading else None
        super().__init__(
            prog=program, description=about.rstrip(), epilog=epilog, allow_abbrev=False, formatter_class=_Help
        )
        self._before: Sequence[str] = ()
        """The arguments that are read, without those behind `--`."""

    def read(self, arguments: Sequence[str]) -> argparse.Namespace:
        """The arguments by name. Ends the process for --help and for wrong usage, as argparse does.

        Arguments behind `--` are given.rest, if the verb has set_defaults(rest=[]); otherwise `--` has no meaning, and
        a file whose name begins with a dash must be written as ./-name.
        """
        if with_nul := [argument for argument in arguments if "\0" in argument]:  # not from a shell, but from Python
            self.error(f"no argument can hold a NUL: {with_nul[0]!r}")
        end = arguments.index("--") if "--" in arguments else len(arguments)
        before, rest = list(arguments[:end]), list(arguments[end + 1 :])
        if self.get_default("rest") is None:
            before, rest = before + rest, []
        self._before = before
        given, unknown = self.parse_known_intermixed_args(before)
        given.rest = rest
        if unknown:
            self.error(self._unexpected(unknown[0]))
        return given

    @property
    def _options(self) -> list[str]:
        return [option for action in self._actions for option in action.option_strings]

    def _unexpected(self, argument: str) -> str:
        wrong = argument.partition("=")[0]
        hint = for_option(wrong, self.prog.rpartition(" ")[2]) or suggest(wrong, self._options)
        if not hint and argument.startswith("-") and os.path.exists(argument):  # noqa: PTH110
            hint = f"write ./{argument} for the file of that name"
        return f"unexpected argument {wrong!r}" + (f"; {hint}" if hint else "")

    def print_help(self, file: Any = None) -> None:
        print(self.format_help(), end="", file=file)  # argparse ignores what goes wrong

    def error(self, message: str) -> NoReturn:
        if message.startswith("the following arguments are required"):  # an unknown option may stand in their place
            known = ("-", *self._options)
            dashed = [argument for argument in self._before if argument.startswith("-") and not argument[1:2].isdigit()]
            unknown = [item for item in dashed if item.partition("=")[0] not in known and item[:2] not in known]
            message = self._unexpected(unknown[0]) if unknown else message
        print(printable(f"{self.prog}: error: {message}"), f"  hint: see {self.prog} --help", sep="\n", file=sys.stderr)
        sys.exit(2)


def integer(text: str) -> int:
    """A whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"not a whole number: {text[:40]!r}") from None


def not_empty(text: str) -> str:
    """Refuse an empty argument: a script's variable was probably not set."""
    if not text:
        raise argparse.ArgumentTypeError("is empty")
    return text


def seconds(text: str) -> float:
    """A timeout in seconds."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= 86400:
        raise argparse.ArgumentTypeError(f"not a number of seconds above 0, at most 86400: {text[:40]!r}")
    return value


def plan_file(parser: Parser) -> None:
    """FILE, as given.file."""
    parser.add_argument("file", metavar="FILE", type=not_empty, help="the plan, or - for stdin")


def plan_files(parser: Parser) -> None:
    """FILE..., as given.files, and --only-plans: see plans_named."""
    parser.add_argument(
        "files", metavar="FILE", type=not_empty, nargs="+", help="plans, folders of plans, or - for stdin"
    )
    about = "skip files without the key hipplan:, as in folders (for hooks that pass every YAML file)"
    parser.add_argument("--only-plans", action="store_true", help=about)


def plans_named(given: argparse.Namespace, *, parts: bool = False) -> list[str]:
    """The files, and the plans of the folders; a folder without plans stays in the list. With --only-plans, only plans.
    Without `parts`, plans are left out that another plan of the folder (with --only-plans: any plan) includes.
    """
    if not given.only_plans and not any(map(is_folder, given.files)):
        return list(given.files)
    from pathlib import Path

    from hipplan.language.include import plans_among, plans_below

    files_named: list[str] = []
    for named in given.files:
        below = [str(path) for path in plans_below(Path(named), parts=parts)] if is_folder(named) else []
        files_named += below or [named]
    if given.only_plans:  # an unreadable file stays in the list; opening it reports why
        files = {named: Path(named) for named in files_named if named != "-" and os.path.isfile(named)}  # noqa: PTH113
        plans = set(plans_among(files.values(), parts=parts))
        files_named = [named for named in files_named if named not in files or files[named] in plans]
    return files_named


def is_folder(named: str) -> bool:
    return named != "-" and os.path.isdir(named)  # noqa: PTH112  # before pathlib is needed


def format_option(parser: Parser, *more: str) -> None:
    """--format text|json and the verb's other formats, as given.format."""
    parser.add_argument(
        "--format",
        choices=("text", "json", *more),
        default="text",
        help="text for people, json for programs (default: text)",
    )


def machine_option(parser: Parser) -> None:
    """--machine, as given.machine."""
    about = "a machine profile: a shipped name (`hipplan machine list`) or a YAML file"
    parser.add_argument("--machine", metavar="PROFILE", type=not_empty, help=about)


def runtime_option(parser: Parser) -> None:
    """--runtime, as given.runtime (None: HIPPLAN_RUNTIME decides), and --without-gpu, as given.without_gpu."""
    about = (
        "auto (default: amd if it has a device, else cuda, else sim if no GPU's driver is loaded), amd, cuda, sim or "
        "the path of a HIP library; HIPPLAN_RUNTIME sets the default"
    )
    parser.add_argument("--runtime", metavar="RUNTIME", help=about)
    about = "run on ROCm's own libraries on a machine without a GPU; --machine chooses the machine they find"
    parser.add_argument("--without-gpu", action="store_true", help=about)


def quiet_option(parser: Parser) -> None:
    """-q, as given.quiet."""
    parser.add_argument("-q", "--quiet", action="store_true", help="print errors and warnings only")


def as_errors(warnings: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Warnings as errors, for --strict."""
    return [
        replace(warning, severity="error", notes=(*warning.notes, "--strict: warnings are errors"))
        for warning in warnings
    ]


def show_warnings(warnings: Sequence[Diagnostic], given: argparse.Namespace) -> None:
    """Prints them on standard error. Raises PlanError with them under --strict."""
    if given.strict and warnings:
        raise PlanError(as_errors(warnings))
    show(warnings)


@contextlib.contextmanager
def sized_by(**options: str) -> Iterator[None]:
    """Name the option that makes something smaller in errors with these codes, and no place: the plan is one that
    hipplan itself has made."""
    try:
        yield
    except HipplanError as error:
        error.diagnostics = tuple(
            replace(diagnostic, span=None, hint=f"use a smaller {options[diagnostic.code]}")
            if diagnostic.code in options
            else diagnostic
            for diagnostic in error.diagnostics
        )
        raise


def print_notice(text: str) -> None:
    """Print a notice on standard error, unless it is empty."""
    if text:
        print(printable(f"notice: {text}"), file=sys.stderr)


def not_over(outputs: Sequence[tuple[str, str | None]], *inputs: str | None) -> None:
    """Refuse an output that is also an input or another output. Pipes and devices may be both. The files
    named by an index of tensors are inputs too.

    outputs: option and file, as they were given.
    """
    outputs = [(option, output) for option, output in outputs if output not in (None, "-")]
    if outputs:
        inputs = (
            *inputs,
            *(
                file
                for file_given in inputs
                if file_given and file_given.endswith(".index.json")
                for file in _named_by(file_given)
            ),
        )
    for number, (option, output) in enumerate(outputs):
        if any(_same_file(output, source) for source in inputs):
            raise WrongUsage(f"{option}: {output} is an input of this command; name another file")
        for other, earlier in outputs[:number]:
            if _same_file(output, earlier):
                raise WrongUsage(f"{option}: {output} is written by {other} too; name another file")


def _named_by(index: str) -> set[str]:
    from hipplan.files.tensorfiles import FileProblem, read_index

    try:
        return set(read_index(index).values())
    except FileProblem:  # the reader reports it
        return set()


def _same_file(a: str | None, b: str | None) -> bool:
    if not a or not b or "-" in (a, b):
        return False
    with contextlib.suppress(OSError, ValueError):
        if os.path.exists(a):  # noqa: PTH110
            return os.path.isfile(a) and os.path.samefile(a, b)  # noqa: PTH113, PTH121
        return os.path.realpath(a) == os.path.realpath(b)
    return False


def print_failure(error: HipplanError, as_json: bool) -> None:
    """Print an error on standard error, and with --format json also as a line on standard output."""
    show(error.diagnostics)
    if as_json:
        from hipplan.files import strict_json

        diagnostics = [diagnostic.to_json() for diagnostic in error.diagnostics]
        line = strict_json.document(None, event="failed", exit_code=error.exit_code, diagnostics=diagnostics)
        with contextlib.suppress(OSError):  # the failure matters more than this report
            print(line, flush=True)


def print_document(text: str) -> None:
    """Print a document to standard output as UTF-8, whatever the terminal's encoding."""
    sys.stdout.flush()
    buffer = getattr(sys.stdout, "buffer", None)
    if buffer is None:
        sys.stdout.write(text)
    else:
        buffer.write(text.encode())
        buffer.flush()


def output_option(parser: Parser, metavar: str) -> None:
    """-o, as given.output: see write_output."""
    about = "the file to write (default: standard output)"
    parser.add_argument("-o", "--output", metavar=metavar, default="-", help=about)


def write_output(output: str, text: str, what: str) -> None:
    """Writes a document to the file of --output, or to standard output for `-`. Raises PlanError (HP413,
    HP416)."""
    if output == "-":
        print_document(text)
        return
    from hipplan.files.output import write_document

    write_document(output, text, what)


def source_of(file: str) -> str | IO[bytes]:
    """A path, or standard input for `-`."""
    if file != "-":
        # load() would take a text with a line break as a document, but here it is always a file name.
        if "\n" in file:
            raise PlanError(Diagnostic("HP001", f"the file name of a plan cannot hold a line break: {file!r}"))
        return file
    if sys.stdin is None:
        raise PlanError(Diagnostic("HP001", "standard input is closed"))
    return sys.stdin.buffer
