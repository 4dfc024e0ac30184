"""Each call about a file fails in turn: of bytes that sleep, wake and are saved, of documents, records and votes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cpp import refusing
from tests.faults.harness import points

pytestmark = refusing.not_under_sanitizers

FULL = """
import sys
from pathlib import Path
import hipplan
from hipplan.files.output import write_document
from hipplan.processes.connections import never
from hipplan.ranks.stores import FolderStore, StoreLost

folder = Path(sys.argv[1])
(folder / "old").write_text("old")
(folder / "ballast").write_bytes(bytes(1 << 20))
store = FolderStore(folder)
with hipplan.apply({"hipplan": 1, "regions": {"r": {"size": "2MiB"}}}, runtime="sim") as layout:
    layout.fill("r", 7)
    before = {path: path.stat().st_size for path in folder.iterdir()}
    for act in (
        lambda: layout.sleep("r", to=folder / "copy.bin"),
        lambda: layout.save("r", folder / "old"),
        lambda: write_document(str(folder / "old"), "new" * 10000, "the lock"),
    ):
        try:
            act()
        except hipplan.HipplanError as error:
            print(error.diagnostics[0].code, error.diagnostics[0].why)
    assert layout.asleep == {} and layout.read("r")[0] == 7
    try:
        store.first("1/vote/0", bytes(1 << 16))
    except StoreLost as lost:
        print(lost)
    assert store.get("1/vote/0", 0.0, never) is None
    assert {path: path.stat().st_size for path in folder.iterdir()} == before
    (folder / "ballast").unlink()
    assert store.first("1/vote/0", b"yes") == b"yes"
"""


@pytest.mark.in_turns
def test_each_call_about_a_file_fails_in_turn(tmp_path: Path) -> None:
    (folder := tmp_path / "files").mkdir()
    environment = refusing.environment(tmp_path, Path(__file__).with_name("failing_files.c"))
    line = [sys.executable, "-m", "tests.faults.files", str(folder)]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=3600)

    assert done.stderr == ""
    came = json.loads(done.stdout)
    assert came["wrong"] == []
    for act, count in came["failed"].items():
        assert count >= 2, act
        points["calls about files"] += count


def test_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    """A real one, of a MiB."""
    mounted = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        'mount -t tmpfs -o size=1028k,mode=700 none "$0" && exec "$@"',
        str(tmp_path),
    ]
    try:
        tried = subprocess.run([*mounted, "true"], capture_output=True, text=True)
    except OSError as error:
        pytest.skip(f"needs unshare: {error}")
    if tried.returncode != 0:
        pytest.skip(f"needs the right to mount: {tried.stderr.strip()}")
    done = subprocess.run([*mounted, sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    full = "No space left on device"
    assert done.stdout.splitlines() == [f"HP413 {full}"] * 3 + [f"the folder of the group cannot be used: {full}"]
