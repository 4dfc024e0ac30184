"""A signal at any moment of the command ends it with the signal's exit code, and is never taken for something else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

QUICKSTART = ROOT / "plans" / "quickstart.yaml"
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]

# Sends a command signals at some moments: before the n-th import, or the n-th call of a Python function, counted from
# the command's first. What is imported before is imported by a bare interpreter too, unless everything is `loaded`.
# Each signal goes to a fork of its own: of one command on its way, or from the beginning (of `apply`: memory is not the
# forks' of who holds it).
SWEEP = """
import collections, json, os, random, signal, sys, traceback
kind, on_the_way, loaded, wanted, folder, *arguments = sys.argv[1:]
if loaded == "loaded":
    import hipplan.api, hipplan.cli.apply, hipplan.cli.main, hipplan.show.render
sent = []

def run(passed):
    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            passed()
    from hipplan.cli import command
    sys.argv = ["hipplan", *arguments]
    if kind == "import":
        sys.meta_path.insert(0, Finder)
    else:
        sys.setprofile(lambda frame, event, argument: passed() if event == "call" else None)
    try:
        command()
    finally:
        sys.setprofile(None)

def fork():
    # None in the child, else its exit code and standard error.
    child = os.fork()
    name = f"{folder}/{child or os.getpid()}"
    if child == 0:
        for number in (1, 2):
            os.dup2(os.open(f"{name}.{number}", os.O_CREAT | os.O_WRONLY), number)
        return None
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code, open(f"{name}.2").read()

def forked(moments, fork_again):
    # Runs the command, gets the signals of each moment, and says how many moments there were.
    count, outcomes, runner = 0, [], 0
    def passed():
        nonlocal count
        count += 1
        for number in moments[count] if os.getpid() == runner and count in moments else ():
            outcome = fork() if fork_again else None
            if outcome is None:
                os.kill(os.getpid(), number)
                return
            outcomes.append((count, number, *outcome))
    outcome = fork()
    if outcome is None:
        runner, code = os.getpid(), 99
        try:
            run(passed)
        except SystemExit as ended:
            sys.stdout.flush()
            code = ended.code
        except BaseException:
            traceback.print_exc()
        if os.getpid() == runner:
            open(f"{folder}/told", "w").write(json.dumps([count, outcomes]))
        os._exit(code)
    return outcome

code, told = forked({}, False)
whole, _ = json.load(open(f"{folder}/told"))
assert code == 0 and whole > 50, (whole, code, told)
moments = collections.defaultdict(list)
chosen = random.Random(7)
for number, places in json.loads(wanted):
    for at in chosen.sample(range(1, whole * 9 // 10), places):
        moments[at].append(number)
if on_the_way == "on the way":
    assert forked(moments, True)[0] == 0
    _, outcomes = json.load(open(f"{folder}/told"))
else:
    outcomes = [(at, number, *forked({at: [number]}, False)) for at in sorted(moments) for number in moments[at]]
assert len(outcomes) == sum(map(len, moments.values()))
for at, number, code, told in outcomes:
    held = "rolled back" in told or "current driver call" in told  # it was between two driver calls
    assert code in (128 + number, -number) and (not told or held), f"{kind} {at} of {whole}: exit code {code}: {told}"
"""


@pytest.mark.in_parts
@pytest.mark.parametrize(
    ("kind", "signals"),
    [
        ("import", [(signal.SIGINT, 8)]),
        ("call", [(signal.SIGINT, 16), (signal.SIGTERM, 3), (signal.SIGHUP, 3)]),
    ],
    ids=["import", "call"],
)
@pytest.mark.parametrize("verb", ["validate", "preview", "apply"])
def test_a_signal_at_any_moment_ends_the_command(
    verb: str, kind: str, signals: list[tuple[int, int]], tmp_path: Path
) -> None:
    more = {"validate": (), "preview": ("--machine", "sim-2"), "apply": ("--once", "--runtime", "sim")}[verb]
    how = ("from the start", "loaded" if kind == "call" else "bare") if verb == "apply" else ("on the way", "bare")
    line = [sys.executable, "-c", SWEEP, kind, *how, json.dumps(signals), tmp_path, verb, QUICKSTART, *more]
    done = subprocess.run(list(map(str, line)), capture_output=True, text=True)

    assert done.returncode == 0, done.stderr


def test_a_signal_that_a_library_swallows_is_handled() -> None:
    """As pydantic does: what is raised into its callbacks comes back as an error of the plan."""
    code = """
import os, signal
import hipplan.language.loader
def examine(*arguments, **named):
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        raise hipplan.PlanError(hipplan.Diagnostic("HP106", "'gpu' cannot be a name")) from None
hipplan.language.loader.examine = examine
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
import hipplan.layout.prepare
def prepare(*arguments, **named):
    os.kill(os.getpid(), signal.SIGTERM)
hipplan.layout.prepare.prepare = prepare
from hipplan.cli import command
command()
"""
    line = [sys.executable, "-c", code, "apply", QUICKSTART, "--runtime", "sim", "--record", tmp_path / "record"]
    done = subprocess.run(line, capture_output=True, text=True)

    from hipplan.layout.recorded import read

    assert (done.returncode, done.stdout, done.stderr) == (143, "", "")
    assert [event["why"] for event in read(tmp_path / "record").of("failed")] == ["SIGTERM"]


@pytest.mark.in_parts
@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_signal_while_a_file_is_written_leaves_it_whole(number: signal.Signals, tmp_path: Path) -> None:
    code = f"""
import os, signal, sys
import hipplan.files.output
real = hipplan.files.output._new_part
def new_part(folder, mode):
    made = real(folder, mode)
    os.kill(os.getpid(), {int(number)})
    return made
hipplan.files.output._new_part = new_part
from hipplan.cli import command
command()
"""
    line = [sys.executable, "-c", code, "lock", QUICKSTART, "--machine", "sim-2", "-o", tmp_path / "plan.lock"]
    done = subprocess.run(line, capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (128 + number, "")
    assert [path.name for path in tmp_path.iterdir()] == ["plan.lock"]
    assert (tmp_path / "plan.lock").stat().st_size > 100


@pytest.mark.in_parts
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
