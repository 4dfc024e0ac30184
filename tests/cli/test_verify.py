"""hipplan verify asks the process that holds a layout; drift is shown; nobody can make the other hang."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from hipplan import held
from hipplan.errors import HeldError
from tests.cli.conftest import Run, command
from tests.conftest import ROOT, Simulator

QUICKSTART = ROOT / "plans" / "quickstart.yaml"

# hipplan itself, with somebody else in the process who takes gpu.1's right to the first mapping away at SIGUSR1.
MEDDLED = """
import signal, sys
import hipplan.cli.main, hipplan.transaction
real_run = hipplan.transaction.run
def run(*arguments, **named):
    layout = real_run(*arguments, **named)
    def meddle(number, frame):
        entry = layout._live.entry("model[0]")
        layout._live.journal.set_access(entry, [(1, 0, 3), (1, 1, 0)])
        print("meddled", file=sys.stderr, flush=True)
    signal.signal(signal.SIGUSR1, meddle)
    return layout
hipplan.transaction.run = run
sys.exit(hipplan.cli.main.run(sys.argv[1:]))
"""


@contextlib.contextmanager
def holding(*start: str) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the quickstart; torn down afterwards, with SIGTERM's exit code."""
    process = subprocess.Popen(
        [*(start or command()), "apply", str(QUICKSTART), "--runtime", "sim"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _until(process, "holding")
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=600)
    assert process.returncode == 143


def _until(process: subprocess.Popen[str], word: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if word in line:
            return
    pytest.fail(f"it ended before it said '{word}'")


def test_a_held_layout_is_verified_from_another_process(hipplan: Run) -> None:
    with holding() as process:
        assert process.pid in held.processes()
        done = hipplan("verify", process.pid)
        listed = json.loads(hipplan("verify", "--list", "--format", "json").stdout)

        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(f"quickstart (process {process.pid}): all ")
        assert done.stdout.endswith(" checks are as the plan says\n")
        assert process.pid in listed["processes"]
    assert process.pid not in held.processes()


def test_drift_is_shown_as_a_difference_and_has_an_exit_code_of_its_own(hipplan: Run) -> None:
    with holding(sys.executable, "-c", MEDDLED) as process:
        assert hipplan("verify", process.pid).returncode == 0
        process.send_signal(signal.SIGUSR1)
        _until(process, "meddled")
        for _ in range(2):  # asking changes nothing
            done = hipplan("verify", process.pid)
            assert done.returncode == 6
            assert f"quickstart (process {process.pid}): 1 of " in done.stdout
            assert done.stdout.endswith(
                "checks differs from the plan\n  model[0]: access of gpu.1\n    - desired: r\n    + current: none\n"
            )
        told = json.loads(hipplan("verify", process.pid, "--format", "json").stdout)

    assert told["differ"] == 1
    assert told["differences"] == [{"name": "model[0]", "what": "access of gpu.1", "desired": "r", "current": "none"}]


def test_a_holder_that_is_killed_leaves_nothing_that_blocks_the_next(hipplan: Run) -> None:
    process = subprocess.Popen(
        command("apply", QUICKSTART, "--runtime", "sim"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    _until(process, "holding")
    process.kill()
    process.communicate()

    assert process.pid not in held.processes()
    with holding() as another:
        assert hipplan("verify", another.pid).returncode == 0


def test_what_cannot_be_asked_exits_4_with_a_sentence(hipplan: Run) -> None:
    done = hipplan("verify", os.getpid())

    assert done.returncode == 4
    assert f"error[HP412]: process {os.getpid()} holds no layout" in done.stderr
    assert hipplan("verify", 0).returncode == 2
    assert hipplan("verify", "quickstart").returncode == 2


def test_drift_is_told_to_a_program_too(sim: Simulator) -> None:
    import hipplan

    with hipplan.apply(QUICKSTART, runtime="sim") as layout:
        assert layout.drift() == []
        layout._live.journal.set_access(layout._live.entry("model[1]"), [(1, 0, 0), (1, 1, 3)])
        (one,) = layout.drift()
        assert (one.name, one.what, one.desired, one.current) == ("model[1]", "access of gpu.0", "r", "none")
    with pytest.raises(ValueError, match="closed"):
        layout.verify()


class Clock:
    """Time that stands still until a test moves it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(held, "monotonic", lambda: self.now)


def _serve(answers: held.Answers) -> None:
    """Until there is nothing to do without waiting."""
    while select.select(answers.files(), [], [], 0)[0]:
        answers.serve()


def _door() -> str:
    (door,) = [name for name in held._doors() if f"-{os.getpid()}-" in name]
    return door


def test_clients_that_hang_or_talk_nonsense_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    made: list[int] = []

    def answer() -> held.Answer:
        made.append(1)
        return {"padding": "x" * 1_000_000}  # more than a socket takes at once

    with held.Answers(answer) as answers, contextlib.ExitStack() as clients:
        for said in (b"", b"GET / HTTP/1.1\r\n", held.REQUEST[:-3], held.REQUEST, held.REQUEST * 1000):
            client = clients.enter_context(socket.socket(socket.AF_UNIX))
            client.connect(_door())
            client.sendall(said)
        _serve(answers)

        assert len(made) == 2
        assert len(answers._clients) == 4  # all but the one who talks nonsense
        assert answers.wait_s() == held.PATIENCE_S
        clock.now = held.PATIENCE_S - 0.1
        answers.serve()
        assert len(answers._clients) == 4
        clock.now = held.PATIENCE_S
        answers.serve()
        assert answers.wait_s() is None


def test_who_comes_when_no_descriptor_is_left_waits_and_keeps_nobody_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "DEAF_S", 0.2)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as after, held.Answers(lambda: {"said": "yes"}) as answers:
        after.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        client = after.enter_context(socket.socket(socket.AF_UNIX))
        (ready,) = answers.files()
        client.connect(answers._door.getsockname())
        client.sendall(held.REQUEST)
        client.settimeout(10)
        filled = []
        with contextlib.suppress(OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
            while True:
                filled.append(os.dup(ready))
        answers.serve()
        assert select.select([ready], [], [], 0)[0] == []  # or it would be served again, and again
        assert 0 < (answers.wait_s() or 0) <= 0.2
        for one in filled:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        end = time.monotonic() + 300
        while answers.wait_s() is not None and time.monotonic() < end:
            select.select([ready], [], [], answers.wait_s())
            answers.serve()

        assert json.loads(client.recv(1000)) == {"said": "yes"}


def test_more_clients_than_there_is_room_for_are_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)
    with held.Answers(dict) as answers, contextlib.ExitStack() as clients:
        for _ in range(40):
            client = clients.enter_context(socket.socket(socket.AF_UNIX))
            client.connect(_door())
            _serve(answers)
        assert len(answers._clients) == held._CLIENTS


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"no json",
        b"[" * 100_000,
        b'{"format_version": 1}',
        b'{"format_version": 2, "plan": "x"}',
        b'{"format_version": 1, "plan": "x", "process": 1, "checks": 1, "differ": 1, "differences": [1]}',
        b'{"format_version": 1, "error": "hipMemGetAccess"}',
        None,
        b"x" * (held.ANSWER_BYTES + 100_000),
    ],
    ids=["nothing", "text", "deep", "short", "newer", "shape", "failed", "hangs", "long"],
)
def test_a_holder_that_answers_nonsense_or_not_at_all_is_told_of(
    reply: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program may sit behind a name like ours."""
    monkeypatch.setattr(held, "ANSWER_S", 0.3)
    child = os.fork()
    if child == 0:
        with socket.socket(socket.AF_UNIX) as door:
            door.bind(f"{held._prefix()}{os.getpid()}-impostor")
            door.listen()
            while True:
                connection, _ = door.accept()
                if connection.recv(100) and reply is not None:
                    with contextlib.suppress(OSError):
                        connection.sendall(reply)
                elif reply is None:
                    time.sleep(5)
                connection.close()
    try:
        while child not in held.processes():
            time.sleep(0.01)
        with pytest.raises(HeldError) as caught:
            held.ask(child)
        assert caught.value.exit_code == 4
        assert caught.value.diagnostics[0].why
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_who_cannot_open_a_socket_holds_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*arguments: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(held.socket, "socket", refused)
    with held.Answers(dict) as answers:
        assert answers.files() == []
        assert answers.wait_s() is None
        answers.serve()

    assert "`hipplan verify` cannot ask this process: Operation not permitted" in caplog.text


def test_layouts_of_other_users_are_neither_listed_nor_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ends look at who the kernel says the other is; here each is told of another user."""
    with held.Answers(dict) as answers:
        monkeypatch.setattr(held, "_peer", lambda connection: (os.getpid(), os.getuid() + 1, 0))
        assert os.getpid() not in held.processes()
        with held._knock(_door()) as connection:
            connection.sendall(held.REQUEST)
            _serve(answers)
            assert answers.wait_s() is None
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(100) == b""
