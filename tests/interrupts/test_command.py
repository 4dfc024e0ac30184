"""A signal at any moment of the command ends it with the signal's exit code, and is never taken for something else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

QUICKSTART = ROOT / "plans" / "quickstart.yaml"
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]

# Forks a command for each of some moments: before the n-th import, or the n-th call of a Python function, counted from
# the command's first. What is imported before is imported by a bare interpreter too.
SWEEP = """
import os, random, signal, sys
kind, places, number, folder, *arguments = sys.argv[1:]
places, number = int(places), int(number)

def run(at):
    count = 0
    def passed():
        nonlocal count
        count += 1
        if count == at:
            os.kill(os.getpid(), number)
    if kind == "import":
        class Finder:
            @staticmethod
            def find_spec(name, path=None, target=None):
                passed()
    from hipplan.cli import command
    if kind == "import":
        sys.meta_path.insert(0, Finder)
    sys.argv = ["hipplan", *arguments]
    if kind == "call":
        sys.setprofile(lambda frame, event, argument: passed() if event == "call" else None)
    try:
        command()
    finally:
        sys.setprofile(None)
        os.write(report, str(count).encode())

def forked(at):
    global report
    read, report = os.pipe()
    child = os.fork()
    if child == 0:
        out = os.open(folder + "/out", os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        err = os.open(folder + "/err", os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        os.dup2(out, 1)
        os.dup2(err, 2)
        try:
            run(at)
        except SystemExit as ended:
            sys.stdout.flush()
            os._exit(ended.code)
        except BaseException:
            import traceback
            traceback.print_exc()
        os._exit(99)
    os.close(report)
    counted = int(os.read(read, 100) or 0)
    os.close(read)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return counted, code, open(folder + "/err").read()

whole, code, told = forked(0)
assert code == 0 and whole > 50, (whole, code, told)
for at in sorted(random.Random(7).sample(range(1, whole * 9 // 10), places)):
    _, code, told = forked(at)
    held = "rolled back" in told or "driver call under way" in told  # it was between two driver calls
    assert code in (128 + number, -number) and (not told or held), f"{kind} {at} of {whole}: exit code {code}: {told}"
""".replace("\\\\n", "\\n")


@pytest.mark.parametrize(
    ("kind", "places", "number"),
    [
        ("import", 8, signal.SIGINT),
        ("call", 16, signal.SIGINT),
        ("call", 3, signal.SIGTERM),
        ("call", 3, signal.SIGHUP),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
@pytest.mark.parametrize("verb", ["validate", "preview", "apply"])
def test_a_signal_at_any_moment_ends_the_command(
    verb: str, kind: str, places: int, number: signal.Signals, tmp_path: Path
) -> None:
    more = {"validate": (), "preview": ("--machine", "sim-2"), "apply": ("--once", "--runtime", "sim")}[verb]
    line = [sys.executable, "-c", SWEEP, kind, places, int(number), tmp_path, verb, QUICKSTART, *more]
    done = subprocess.run(list(map(str, line)), capture_output=True, text=True)

    assert done.returncode == 0, done.stderr


def test_a_signal_that_a_library_swallows_is_heard() -> None:
    """As pydantic does: what is raised into its callbacks comes back as an error of the plan."""
    code = """
import os, signal
import hipplan.loader
def examine(*arguments, **named):
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        raise hipplan.PlanError(hipplan.Diagnostic("HP106", "'gpu' cannot be a name")) from None
hipplan.loader.examine = examine
from hipplan.cli import command
command()
"""
    line = [sys.executable, "-c", code, "validate", QUICKSTART]
    done = subprocess.run(line, capture_output=True, text=True)

    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_what_comes_before_the_command_can_look_at_signals_is_little() -> None:
    code = "import sys; before = {*sys.modules}; import hipplan.cli; print(*{*sys.modules} - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert {*done.stdout.split()} & {"typing", "re", "enum", "signal", "argparse", "hipplan.errors"} == set()


def test_an_interrupted_apply_that_had_not_begun_is_recorded(tmp_path: Path) -> None:
    code = """
import os, signal, sys
import hipplan.prepare
def prepare(*arguments):
    os.kill(os.getpid(), signal.SIGTERM)
hipplan.prepare.prepare = prepare
from hipplan.cli import command
command()
"""
    line = [sys.executable, "-c", code, "apply", QUICKSTART, "--runtime", "sim", "--record", tmp_path / "record"]
    done = subprocess.run(line, capture_output=True, text=True)

    from hipplan.record import read

    assert (done.returncode, done.stdout, done.stderr) == (143, "", "")
    assert [event["why"] for event in read(tmp_path / "record").of("failed")] == ["SIGTERM"]


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_signal_while_a_file_is_written_leaves_it_whole(number: signal.Signals, tmp_path: Path) -> None:
    code = f"""
import os, signal, sys
import hipplan.output
real = hipplan.output._new_beside
def beside(target):
    made = real(target)
    os.kill(os.getpid(), {int(number)})
    return made
hipplan.output._new_beside = beside
from hipplan.cli import command
command()
"""
    line = [sys.executable, "-c", code, "lock", QUICKSTART, "--machine", "sim-2", "-o", tmp_path / "plan.lock"]
    done = subprocess.run(line, capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (128 + number, "")
    assert [one.name for one in tmp_path.iterdir()] == ["plan.lock"]
    assert (tmp_path / "plan.lock").stat().st_size > 100


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_signal_while_bandwidth_is_measured_gives_everything_back(number: signal.Signals, tmp_path: Path) -> None:
    code = f"""
import os, signal, sys
import hipplan.bench
real = hipplan.bench._cell
def cell(*arguments):
    os.kill(os.getpid(), {int(number)})
    return real(*arguments)
hipplan.bench._cell = cell
from hipplan.cli import command
command()
"""
    ledger = tmp_path / "ledger"
    line = [sys.executable, "-c", code, "bench", "--runtime", "sim", "--size", "4KiB", "--repeats", "1"]
    done = subprocess.run(line, capture_output=True, text=True, env=os.environ | {"HIPSIM_LEDGER_AT_EXIT": str(ledger)})

    assert done.returncode == 128 + number
    assert "Traceback" not in done.stderr
    assert '"allocations": []' in ledger.read_text()
