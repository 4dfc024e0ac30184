"""docs/holders.md: each command runs, and prints the output on the page."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from hipplan.holders import requests
from tests.cli.test_tutorial import commands, shell  # noqa: F401  # a fixture
from tests.conftest import ROOT
from tests.holders.test_holders import Held, until

TEXT = (ROOT / "docs" / "holders.md").read_text()
BLOCKS: list[tuple[str, str]] = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.S | re.M)
UNIT = ROOT / "hipplan" / "holders" / "hipplan@.service"


def test_each_command_prints_the_output_on_the_page(folder: Path, tmp_path: Path, shell: dict[str, str]) -> None:  # noqa: F811
    ran = 0
    for kind, body in BLOCKS:
        if kind in ("yaml", "python"):
            (tmp_path / body.split("\n", 1)[0].removeprefix("# ")).write_text(body)
            continue
        for command, code, shown in commands(body) if kind == "sh" else ():
            done = subprocess.run(
                ["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path, env=shell, timeout=600
            )
            assert (done.returncode, done.stderr) == (code, ""), command
            printed = [line for line in done.stdout.splitlines() if line]
            assert len(printed) == len(shown), done.stdout
            for expected, line in zip(shown, printed, strict=True):
                assert re.fullmatch(".*".join(map(re.escape, expected.split("..."))), line), done.stdout
            ran += 1
    assert ran >= 10


def test_the_systemd_unit_runs_a_holder_until_it_is_stopped(folder: Path, plan: Path, tmp_path: Path) -> None:
    (line,) = re.findall(r"^ExecStart=%h/.local/bin/hipplan (.*)$", UNIT.read_text(), re.M)
    arguments = line.replace("%E/hipplan/%i.yaml", str(plan)).replace("%i", "w").split()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(str(tmp_path / "notify"))
        notified.settimeout(120)
        service = subprocess.Popen(
            [sys.executable, "-m", "hipplan", *arguments],
            env=os.environ | {"NOTIFY_SOCKET": str(tmp_path / "notify")},
            stderr=subprocess.PIPE,
        )
        assert notified.recv(64) == b"READY=1"
    assert requests.status("w")["pid"] == service.pid
    service.send_signal(signal.SIGTERM)
    assert b"ended" in service.communicate()[1]
    (status,) = re.findall(r"^SuccessExitStatus=(\d+)$", UNIT.read_text(), re.M)
    assert service.returncode == int(status)
    assert not (folder / "hipplan" / "held-w").exists()


def test_a_container_attaches_over_a_mounted_folder(
    held: Held,
    folder: Path,
    tmp_path: Path,
    shell: dict[str, str],  # noqa: F811
) -> None:
    """A process in its own mount, process and network namespaces, with the folder mounted as docs/holders.md shows."""
    inside = tmp_path / "inside" / "hipplan"
    inside.mkdir(parents=True)
    script = f'mount --bind "{folder}/hipplan" "{inside}" && exec hipplan attach w -- python -c "$1"'
    attach = "import hipplan; l = hipplan.attach(); print(l.read('model.b').max(), l.lost)"
    container = ["unshare", "--mount", "--pid", "--net", "--fork", "--mount-proc", "sh", "-c", script, "sh", attach]
    held()
    environment = shell | {"XDG_RUNTIME_DIR": str(tmp_path / "inside"), "HIPPLAN_SOCKETS": ""}
    done = subprocess.run(container, capture_output=True, text=True, env=environment, timeout=600)
    until(lambda: requests.status("w")["attached"] == [])
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert (done.stdout, done.returncode) == ("2.5 {}\n", 0), done.stderr
