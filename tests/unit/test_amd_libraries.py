"""AMD's libraries made ready: what is pinned, what is taken when the archive has moved on, and why it cannot be had."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.amd import libraries, library
from tests.amd.libraries import NotPossible, Package
from tests.conftest import ROOT

Tools = Callable[[dict[str, str]], Path]


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    """Programs in the place of apt's and all others."""

    def put(scripts: dict[str, str]) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        for name, script in scripts.items():
            (folder / name).write_text(f"#!/bin/sh\n{script}\n")
            (folder / name).chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))
        return folder

    return put


def ask(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"HIPPLAN_AMD_FOLDER": str(folder)}
    command = [sys.executable, "-m", "tests.amd.library", *arguments]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)


def test_every_package_is_pinned_by_version_and_hash() -> None:
    rows = [line.split() for line in libraries.LOCK.read_text().splitlines() if not line.startswith("#")]
    for suite, name, version, digest, folder in rows:
        assert suite in ("trixie", "sid", "experimental"), name
        assert re.fullmatch(r"[0-9a-f]{64}", digest), name
        assert re.match(r"(\d+:)?\d+\.\d+", version), name
        tools = [f"tools/{release}" for release in libraries.RELEASES]
        assert folder in (*libraries.RELEASES, "common", "glibc", "headers", *tools), name
    hip = [version for _, name, version, _, _ in rows if name.startswith("libamdhip64")]
    assert [version[:3] for version in hip] == list(libraries.RELEASES)


def test_missing_packages_are_an_error_unless_allowed(tools: Tools, tmp_path: Path) -> None:
    failing = 'case $1 in update) echo "E: no network" >&2; exit 100;; esac'
    tools({"apt-get": failing, "apt-cache": "", "dpkg-deb": "", "g++": "", "gcc": ""})
    for extra, code in (([], 3), (["--if-possible"], 0)):
        ran = ask(tmp_path / "amd", *extra)
        assert ran.returncode == code
        assert re.search(r"AMD's library was NOT tested: .*(no network|debian-archive-keyring)", ran.stderr), ran.stderr


def test_a_missing_tool_is_named_with_its_package(tools: Tools, tmp_path: Path) -> None:
    tools({"apt-get": "", "dpkg-deb": ""})
    assert "no gcc, which Debian and Ubuntu have in the package gcc" in ask(tmp_path / "amd").stderr


@pytest.fixture
def archive(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """An archive that has these versions of libone, whatever is asked for; each file holds its version."""
    versions: dict[str, str] = {}

    class Archive:
        def offers(self, package: Package) -> list[str]:
            return list(versions)

        def download(self, package: Package) -> None:
            package.file.parent.mkdir(exist_ok=True)
            package.file.write_text(versions[package.version])

    monkeypatch.setattr(libraries, "FOLDER", tmp_path)
    monkeypatch.setattr(libraries, "_Archive", Archive)
    return versions


def pinned(content: str) -> Package:
    return Package("sid", "libone", "7.2.4-1", hashlib.sha256(content.encode()).hexdigest(), "7.2")


def test_the_pinned_version_is_taken_while_the_archive_has_it(archive: dict[str, str]) -> None:
    archive |= {"7.2.5-1": "newer", "7.2.4-1": "as pinned"}
    assert libraries.downloaded([pinned("as pinned")]) == ([pinned("as pinned")], [])


def test_the_newest_of_the_same_release_is_used_and_reported(archive: dict[str, str]) -> None:
    archive |= {"7.3.0-1": "another release", "7.2.6-1": "newest", "7.2.5-1": "newer"}
    (got,), (moved,) = libraries.downloaded([pinned("as pinned")])
    assert got.version == "7.2.6-1"
    assert "7.2.6-1" in moved
    assert "no longer has the pinned 7.2.4-1" in moved


def test_another_release_is_no_substitute(archive: dict[str, str]) -> None:
    archive |= {"7.3.0-1": "another release"}
    with pytest.raises(NotPossible, match=r"no longer has libone 7\.2 \(it has 7\.3\.0-1\)"):
        libraries.downloaded([pinned("as pinned")])


def test_a_program_that_debian_no_longer_has_is_left_out(archive: dict[str, str]) -> None:
    archive |= {"7.3.0-1": "another release"}
    got, (left_out,) = libraries.downloaded([replace(pinned("as pinned"), folder="tools/7.2")])
    assert got == []
    assert left_out.startswith("libone is left out: Debian's sid no longer has libone 7.2 (it has 7.3.0-1)")


def test_another_file_under_the_pinned_version_is_refused(archive: dict[str, str]) -> None:
    archive |= {"7.2.4-1": "tampered with"}
    with pytest.raises(NotPossible, match="not the file that"):
        libraries.downloaded([pinned("as pinned")])
    assert not pinned("as pinned").file.exists()


DYING = """
import os, pathlib
ONCE = pathlib.Path(__file__).with_name("once")
def test_first(): pass
def test_dies_once():
    if not ONCE.exists():
        ONCE.touch()
        os._exit(99)
def test_dies_always(): os._exit(99)
def test_last(): pass
"""


def test_a_test_that_dies_runs_once_more_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """6.4 spoils its own heap now and then: what dies twice has died, what dies once is counted."""
    (tmp_path / "test_dying.py").write_text(DYING)
    monkeypatch.setattr(library, "FOLDER", tmp_path)
    monkeypatch.setattr(library, "environment", lambda release: {})
    monkeypatch.setattr(library, "parts", lambda: {"dying": str(tmp_path / "test_dying.py")})

    outcome = library._run(libraries.Ready((), (), False), "6.4", "dying", quick=True)

    assert {name: outcome[name] for name in ("passed", "failed", "died")} == {"passed": 3, "failed": 0, "died": 1}
    assert outcome["numbers"] == {"deaths by chance": 1}
    assert library._cell(outcome) == "3 passed, 1 died; 1 deaths by chance"
    printed = capsys.readouterr().out
    assert re.findall(r"died(?: once)?: .*::(\w+)", printed) == ["test_dies_once", "test_dies_always"]
