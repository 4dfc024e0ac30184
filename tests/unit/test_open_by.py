"""Which other processes have a file open, for the error that memory is still in use."""

from __future__ import annotations

import subprocess
from pathlib import Path

from hipplan.files.open_by import open_by


def test_a_process_that_has_the_file_open_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with file.open("wb") as opened:
        assert open_by(opened.fileno()) == []
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[opened.fileno()]) as process:
            assert open_by(opened.fileno()) == [f"process {process.pid} (cat)"]
        assert open_by(opened.fileno()) == []
