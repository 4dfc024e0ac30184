"""The command: verbs, and the one place where errors become messages and exit codes."""

from __future__ import annotations

import sys
import traceback
from typing import Annotated

import typer

from hipplan import __version__
from hipplan.cli.apply import apply
from hipplan.cli.bench import bench
from hipplan.cli.explain import explain
from hipplan.cli.machine import app as machine_app
from hipplan.cli.preview import preview
from hipplan.cli.schema import schema
from hipplan.cli.sim import sim
from hipplan.cli.validate import validate
from hipplan.cli.verify import verify
from hipplan.errors import ExitCode, HipplanError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="One YAML plan for a GPU experiment's memory: checked without a GPU, applied all or nothing.",
    epilog="Exit codes: 0 done, 1 a bug, 2 usage or invalid plan, 3 machine or runtime cannot hold it, "
    "4 failed and rolled back, 5 something leaked, 6 something differs, 130/143 interrupted.",
)
app.command()(validate)
app.command()(preview)
app.command()(apply)
app.command()(verify)
app.add_typer(machine_app, name="machine")
app.command()(explain)
app.command()(schema)
app.command()(sim)
app.command()(bench)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"hipplan {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None: ...


def main() -> None:
    """Entry point of the `hipplan` command."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Runs one command; its exit code."""
    try:
        app(arguments)  # ends in SystemExit: of success, of wrong usage (2), or with a verb's own code
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else ExitCode.OK
    except HipplanError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:  # the reader has seen enough (`| head`)
        sys.stdout = None  # or the interpreter complains at exit
        return ExitCode.OK
    except Exception:
        traceback.print_exc()
        print(
            "\nThis is a bug in hipplan. Please report the lines above, the plan and the output of `hipplan machine`.",
            file=sys.stderr,
        )
        return ExitCode.BUG
    return ExitCode.OK
