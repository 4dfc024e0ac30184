"""hipplan verify requests a read-back from the process that holds a layout; neither can make the other hang."""

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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from hipplan.errors import HeldError
from hipplan.processes import answering as answering_room
from hipplan.processes import connections, folders, listener, verifying
from hipplan.processes.connections import new_socket
from hipplan.processes.listener import Caller, Listener
from hipplan.processes.packets import Exchange, Gone, Message
from tests.cli.conftest import Run, command
from tests.conftest import ROOT, Simulator
from tests.descriptors import descriptors
from tests.meddling import set_access
from tests.unit.test_links import Packet, head, send, text

QUICKSTART = ROOT / "plans" / "quickstart.yaml"

# hipplan itself, in a process that revokes gpu.1's right to the first mapping at SIGUSR1, without hipplan.
MEDDLED = """
import signal, sys
import hipplan.cli.main, hipplan.layout.run
from tests.meddling import set_access
real_run = hipplan.layout.run.run
def run(*arguments, **named):
    layout = real_run(*arguments, **named)
    def meddle(number, frame):
        set_access(layout, "model[0]", (0, "rw"), (1, "none"))
        print("meddled", file=sys.stderr, flush=True)
    signal.signal(signal.SIGUSR1, meddle)
    return layout
hipplan.layout.run.run = run
sys.exit(hipplan.cli.main.run(sys.argv[1:]))
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the sockets of these tests are."""
    monkeypatch.setenv("HIPPLAN_SOCKETS", str(tmp_path / "sockets"))
    return tmp_path / "sockets"


@pytest.fixture
def usual_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the sockets are without HIPPLAN_SOCKETS. All other programs of this user are visible in such a test."""
    monkeypatch.delenv("HIPPLAN_SOCKETS")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "hipplan"


def pids() -> list[int]:
    return [holder["process"] for holder in verifying.processes_with_layouts()]


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
        assert process.pid in pids()
        done = hipplan("verify", process.pid)
        listed = json.loads(hipplan("verify", "--list", "--format", "json").stdout)

        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(f"quickstart (process {process.pid}): all ")
        assert done.stdout.endswith(" checks match the plan\n")
        assert process.pid in listed["processes"]
    assert process.pid not in pids()


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
        report = json.loads(hipplan("verify", process.pid, "--format", "json").stdout)

    assert report["differ"] == 1
    assert report["differences"] == [{"name": "model[0]", "what": "access of gpu.1", "desired": "r", "current": "none"}]


def test_a_holder_that_is_killed_leaves_nothing_that_blocks_the_next(hipplan: Run) -> None:
    process = subprocess.Popen(
        command("apply", QUICKSTART, "--runtime", "sim"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    _until(process, "holding")
    process.kill()
    process.communicate()

    assert process.pid not in pids()
    with holding() as another:
        assert hipplan("verify", another.pid).returncode == 0


def test_what_cannot_be_asked_exits_4_with_a_sentence(hipplan: Run) -> None:
    done = hipplan("verify", os.getpid())

    assert done.returncode == 4
    assert f"error[HP412]: process {os.getpid()} holds no layout" in done.stderr
    assert hipplan("verify", 0).returncode == 2
    assert hipplan("verify", "quickstart").returncode == 2


def test_drift_is_reported_to_a_program_too(sim: Simulator) -> None:
    import hipplan

    with hipplan.apply(QUICKSTART, runtime="sim") as layout:
        assert layout.drift() == []
        set_access(layout, "model[1]", (0, "none"), (1, "rw"))
        (one,) = layout.drift()
        assert (one.name, one.what, one.desired, one.current) == ("model[1]", "access of gpu.0", "r", "none")
    with pytest.raises(ValueError, match="closed"):
        layout.verify()


class Clock:
    """Time that stands still until a test moves it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(listener, "monotonic", lambda: self.now)


def serve(listening: Listener[Caller]) -> None:
    """Until there is nothing to do without waiting."""
    while select.select([listening], [], [], 0)[0]:
        listening.serve()


@contextlib.contextmanager
def answering(answer: Callable[[Message], Message]) -> Iterator[Listener[Caller]]:
    """A process's listener that answers so."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answering_room, "answer", answer)
        with answering_room.answers() as listening:
            assert listening is not None
            yield listening


def socket_name(folder: Path) -> str:
    """The newest socket of this process."""
    names = [path for path in folder.iterdir() if path.name.startswith(f"{os.getpid()}-")]
    return max(names, key=lambda path: path.stat().st_mtime_ns).name


def connected(folder: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    descriptor = os.open(folder, os.O_RDONLY)
    client.connect(f"/proc/self/fd/{descriptor}/{socket_name(folder)}")
    os.close(descriptor)
    return client


def is_closed(client: socket.socket) -> bool:
    """By the listener, as far as it has anything to say."""
    client.setblocking(False)
    try:
        return client.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def received(client: socket.socket) -> Message:
    """A message that has come."""
    client.setblocking(False)
    exchange = Exchange(client, None)
    exchange.go_on()
    return exchange.received.message


REQUEST = text({"want": "layouts"})


def test_clients_that_hang_send_invalid_requests_or_read_slowly_are_dropped(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    made: list[Any] = []

    def answer(request: Message) -> Message:
        made.append(request)
        return {"padding": "x" * 1_000_000}  # more than a socket takes at once

    nonsense: tuple[Sequence[Packet], ...] = (
        [b"GET / HTTP/1.1\r\n"],
        [head(listener.REQUEST_BYTES + 1)],
        [head(0)],
        text(None),
        [head(4000), b"J" + b"[" * 4000],
        [head(2), b"J\xff\xff"],
        [head(2, 1)],
        [*REQUEST, b"x"],
    )
    waiting: tuple[Sequence[Packet], ...] = ([], REQUEST[:1], [head(20), b"J{"], REQUEST)
    with answering(answer) as listening, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connected(folder)) for _ in (*nonsense, *waiting)]
        for client, sent in zip(clients, (*nonsense, *waiting), strict=True):
            send(client, sent)
        serve(listening)
        dropped, kept = clients[: len(nonsense)], clients[len(nonsense) :]

        assert made == [{"want": "layouts"}] * 2
        assert all(map(is_closed, dropped[:-1]))
        assert not any(map(is_closed, kept))
        assert listening.wait_s() == listener.REQUEST_S
        clock.now = listener.REQUEST_S - 0.1
        listening.serve()
        assert not any(map(is_closed, kept))
        clock.now = listener.REQUEST_S
        listening.serve()
        assert all(map(is_closed, kept[:-1]))
        assert not is_closed(kept[-1])
        clock.now = listener.ANSWER_S
        listening.serve()
        assert listening.wait_s() is None


def test_a_client_waits_without_busy_looping_while_no_descriptor_is_left(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "ACCEPT_PAUSE_S", 0.2)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as after, answering(lambda request: {"answer": "yes"}) as listening:
        after.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        client = after.enter_context(connected(folder))
        ready = listening.fileno()
        send(client, REQUEST)
        filled = []
        with contextlib.suppress(OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
            while True:
                filled.append(os.dup(ready))
        listening.serve()
        assert select.select([ready], [], [], 0)[0] == []  # or it would be served again, and again
        assert 0 < (listening.wait_s() or 0) <= 0.2
        for one in filled:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        while listening.wait_s() is not None:
            select.select([ready], [], [], listening.wait_s())
            listening.serve()

        assert received(client) == {"answer": "yes"}


def test_silent_clients_do_not_block_others(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    with answering(lambda request: {"answer": "yes"}) as listening, contextlib.ExitStack() as stack:
        silent = []
        for _ in range(10 * listener.CALLERS_MAX):
            clock.now += 0.001
            silent.append(stack.enter_context(connected(folder)))
            serve(listening)
        asking = stack.enter_context(connected(folder))
        send(asking, REQUEST)
        serve(listening)

        assert received(asking) == {"answer": "yes"}
        assert sum(not is_closed(client) for client in silent) < listener.CALLERS_MAX


def test_clients_that_do_not_read_their_answers_make_room_for_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    with answering(lambda request: {"padding": "x" * 1_000_000}) as listening, contextlib.ExitStack() as stack:
        slow = []
        for _ in range(2 * listener.CALLERS_MAX):
            clock.now += 0.001
            slow.append(stack.enter_context(connected(folder)))
            send(slow[-1], REQUEST)
            serve(listening)

        assert len([*listening]) == listener.CALLERS_MAX
        with pytest.raises(Gone):
            received(slow[0])
        slow[-1].setblocking(False)
        exchange = Exchange(slow[-1], None)
        while not exchange.done:
            exchange.go_on()
            serve(listening)
        assert len(exchange.received.message["padding"]) == 1_000_000


@contextlib.contextmanager
def forked(do: Callable[[], None], then: Callable[[], None] = lambda: time.sleep(600)) -> Iterator[int]:
    """A child that does this, and then that until it is killed; its process id."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            do()
            os.write(write, b"x")
            then()
        finally:
            os._exit(1)
    os.close(write)
    try:
        assert os.read(read, 1) == b"x"
        yield child
    finally:
        os.close(read)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def impostor(
    listening: socket.socket, folder: Path, reply: Sequence[Packet] | None
) -> tuple[Callable[[], None], Callable[[], None]]:
    """Listens in the folder; answers so (None: never)."""

    def listen() -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        os.chdir(folder)
        listening.bind(f"{os.getpid()}-impostor")
        listening.listen()

    def answer() -> None:
        while True:
            connection, _ = listening.accept()
            if reply is None:
                time.sleep(600)
            elif connection.recv(100) and connection.recv(1000):
                with contextlib.suppress(OSError):
                    send(connection, reply)
            connection.close()

    return listen, answer


FINE = {"format_version": 1, "process": 1, "command": "c", "layouts": []}
LAYOUT = {"plan": "p", "digest": "d", "machine": "m", "runtime": "r", "since": "s", "bytes": 1, "asleep": {}}


@pytest.mark.parametrize(
    "reply",
    [
        [],
        [b"no head"],
        [head(9)],
        [head(60_000), b"J" + b"[" * 60_000],
        text({"format_version": 1}),
        text(FINE | {"format_version": 2}),
        text(FINE | {"layouts": [1]}),
        text(FINE | {"layouts": [LAYOUT | {"checks": 1, "differ": 1, "differences": [1]}]}),
        text(FINE | {"layouts": [LAYOUT | {"error": "hipMemGetAccess"}]}),
        None,
        [head(verifying.ANSWER_BYTES + 1), b"J" + b"x" * 1000],
        [head(2, 1), b"J{}", (b"F", 1)],
    ],
    ids=[
        "nothing",
        "text",
        "short",
        "deep",
        "empty",
        "newer",
        "layout",
        "differences",
        "failed",
        "hangs",
        "long",
        "files",
    ],
)
def test_an_invalid_or_missing_reply_is_reported(
    reply: Sequence[Packet] | None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program of the same user, or another version of hipplan, may sit there."""
    monkeypatch.setattr(verifying, "ANSWER_S", 0.3)
    monkeypatch.setattr(verifying, "LIST_S", 0.3)
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening,
        forked(*impostor(listening, folder, reply)) as child,
    ):
        opened = descriptors()
        with pytest.raises(HeldError) as caught:
            verifying.verify_process(child)
        listed = verifying.processes_with_layouts()
        assert descriptors() == opened

    assert [answer["process"] for answer in listed if "error" in answer] in ([], [child])
    assert caught.value.exit_code == 4
    assert caught.value.diagnostics[0].why


def test_a_process_without_sockets_still_holds_its_layout(
    sim: Simulator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*arguments: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(socket, "socket", refused)
    with answering_room.answers() as listening:
        assert listening is None

    assert "`hipplan verify` cannot ask this process: Operation not permitted" in caplog.text


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
OTHER = 12345


@as_root
def test_another_user_can_neither_take_names_nor_hide_holders_nor_connect(
    usual_folder: Path, hipplan: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the system gives no runtime folder all users share one: names there are random, owners asked first."""
    squatted = [Path("/tmp", f"hipplan-0-0-{os.getpid()}-{number}") for number in range(1200)]

    def squat() -> None:
        os.setuid(OTHER)
        for path in squatted[:-1]:
            path.mkdir(mode=0o700)
        squatted[-1].symlink_to("/root")

    monkeypatch.setenv("XDG_RUNTIME_DIR", "/no/such/folder")
    try:
        with forked(squat), holding() as process:
            assert process.pid in pids()
            assert hipplan("verify", process.pid).returncode == 0
            (address,) = [path for path in Path("/tmp").glob(f"hipplan-0-*/{process.pid}-*") if path.is_socket()]

            def knock() -> None:
                os.setuid(OTHER)
                with contextlib.suppress(PermissionError), new_socket() as client:
                    client.connect(str(address))
                    raise SystemExit  # which is reported as a child that did not come so far

            with forked(knock):
                pass
    finally:
        for path in squatted:
            if path.is_symlink():
                path.unlink()
            elif path.is_dir():
                path.rmdir()


def test_processes_with_a_folder_of_their_own_find_only_each_other(
    usual_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As this whole suite has one: no other program of this user changes what a test sees."""
    with holding() as usual:
        monkeypatch.setenv("HIPPLAN_SOCKETS", str(tmp_path / "sockets"))
        with holding() as apart:
            assert pids() == [apart.pid]
            monkeypatch.delenv("HIPPLAN_SOCKETS")
            assert usual.pid in pids()
            assert apart.pid not in pids()


@as_root
def test_folders_that_others_may_enter_or_own_are_not_used(usual_folder: Path) -> None:
    folder = usual_folder
    with answering(dict):
        name = socket_name(folder)
        assert (folder / name).is_socket()
        for owner, mode in ((OTHER, 0o700), (0, 0o777), (0, 0o750)):
            os.chown(folder, owner, owner)
            folder.chmod(mode)
            assert (folder / name) not in [Path(f"/proc/self/fd/{f}").readlink() / n for f, n in folders.sockets()]
            with answering(dict):
                assert [path.name for path in folder.iterdir()] == [name]
        os.chown(folder, 0, 0)
        folder.chmod(0o700)
        assert name in [known for _, known in folders.sockets()]


def test_clients_of_another_user_get_no_reply(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where he could connect. Here each is said to be another user."""
    with answering(dict) as listening:
        monkeypatch.setattr(connections, "peer", lambda connection: (os.getpid(), os.geteuid() + 1))
        assert os.getpid() not in pids()
        with connected(folder) as client:
            send(client, REQUEST)
            serve(listening)
            assert is_closed(client)


def test_sockets_of_dead_processes_are_removed_and_others_are_not(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    names = {"old": f"{2**22 + 1}-dead", "young": f"{2**22 + 2}-dead", "file": f"{2**22 + 3}-dead"}
    for name in ("old", "young"):
        with new_socket() as dead:
            dead.bind(str(folder / names[name]))
    (folder / names["file"]).touch()
    long_ago = time.time() - 2 * folders.STALE_S
    for name in ("old", "file"):
        os.utime(folder / names[name], (long_ago, long_ago))

    assert verifying.processes_with_layouts() == []
    assert {path.name for path in folder.iterdir()} == {names["young"], names["file"]}


PROGRAM = """
import hipplan, os, sys
def applied(name, buffers, **options):
    return hipplan.apply({"hipplan": 1, "name": name, "buffers": buffers}, runtime="sim", **options)
one = applied("one", {"b": {"kind": "device", "size": "4MiB"}}, answer=True)
two = applied("two", {"b": {"kind": "pinned", "size": "1MiB"}}, answer=True)
none = applied("none", {})
child = os.fork()
if child == 0:
    one.close(); two.close()
    os._exit(0)
os.waitpid(child, 0)
print("ready", file=sys.stderr, flush=True)
while line := sys.stdin.readline():
    exec(line)
    print("ready", file=sys.stderr, flush=True)
"""


def test_a_program_that_allows_it_answers_about_its_layouts_too(folder: Path, hipplan: Run) -> None:
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, "argument"], stdin=-1, stderr=-1, text=True)
    assert program.stdin is not None and program.stderr is not None
    _until(program, "ready")
    listed = hipplan("verify", "--list").stdout
    (report,) = json.loads(hipplan("verify", "--list", "--format", "json").stdout)["holders"]
    verified = hipplan("verify")
    as_json = json.loads(hipplan("verify", program.pid, "--format", "json").stdout)

    assert [(layout["plan"], layout["bytes"]) for layout in report["layouts"]] == [("one", 4 << 20), ("two", 1 << 20)]
    assert report["process"] == program.pid
    assert report["command"].endswith("argument")
    assert report["layouts"][0]["since"].startswith("20")
    for shown in ("plan", "memory", "since", "command", "one", "two", "4MiB", "1MiB", "argument"):
        assert shown in listed
    assert verified.returncode == 0
    assert verified.stdout.splitlines() == [
        f"one (process {program.pid}): all 3 checks match the plan",
        f"two (process {program.pid}): 1 check matches the plan",
    ]
    assert as_json["checks"] == sum(layout["checks"] for layout in as_json["layouts"])
    program.stdin.write("one.close(); two.close()\n")
    program.stdin.flush()
    _until(program, "ready")
    assert verifying.processes_with_layouts() == []
    assert hipplan("verify", program.pid).returncode == 4
    program.communicate(timeout=600)
    assert program.returncode == 0
    assert list(folder.iterdir()) == []


PLAIN = """
import hipplan, os, sys, threading
with hipplan.apply({"hipplan": 1, "buffers": {"b": {"kind": "device", "size": "4MiB"}}}, runtime="sim"):
    sockets = [link for link in os.scandir("/proc/self/fd") if os.readlink(link).startswith("socket:")]
    print(threading.active_count(), len(sockets), "hipplan.processes.answering" in sys.modules)
"""


def test_a_plain_apply_starts_no_thread_and_opens_no_socket(folder: Path) -> None:
    program = subprocess.run([sys.executable, "-c", PLAIN], stdout=subprocess.PIPE, text=True, check=True)

    assert program.stdout == "1 0 False\n"
    assert not folder.exists()


def test_a_process_that_is_stopped_is_listed_as_that(monkeypatch: pytest.MonkeyPatch, hipplan: Run) -> None:
    monkeypatch.setattr(verifying, "LIST_S", 0.3)
    with holding() as process, holding() as other:
        process.send_signal(signal.SIGSTOP)
        try:
            silent, well = sorted(verifying.processes_with_layouts(), key=lambda one: one["process"] == other.pid)
            listed = hipplan("verify", "--list")
        finally:
            process.send_signal(signal.SIGCONT)

    assert silent["error"] == "it did not answer within 0.3 s"
    assert [layout["plan"] for layout in well["layouts"]] == ["quickstart"]
    assert "did not answer" in listed.stdout


def test_many_holders_are_listed_with_few_descriptors(folder: Path) -> None:
    """One process under many names."""
    with holding() as process:
        (address,) = folder.iterdir()
        for number in range(250):
            os.link(address, folder / f"{2**22 + number}-{number}")
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
        try:
            result = verifying.processes_with_layouts()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert len(result) == 251
    assert process.pid in [item["process"] for item in result]
    assert all([layout["plan"] for layout in item["layouts"]] == ["quickstart"] for item in result)
