"""Builds and installs hipplan into the Python that runs this, editable; says what it does and how far it is.

python tools/build.py FOLDER [ARGUMENT OF PIP]...    FOLDER keeps what the compiler made, for the next build

All that pip, CMake and the compiler say goes into FOLDER.log. Of a build that fails its end is printed, of one that
succeeds the compiler's warnings.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINES_SHOWN = 60
TARGET = re.compile(r"\[(\d+)/(\d+)\] ")


def main(folder: str, *arguments: str) -> int:
    pip = [sys.executable, "-m", "pip", "install", "--verbose", "--no-build-isolation", "--editable", str(ROOT)]
    print("Compiling hipplan's C++; from scratch this usually takes 1 to 2 minutes on two cores", flush=True)
    began = time.monotonic()
    file = Path(f"{folder}.log")
    file.parent.mkdir(parents=True, exist_ok=True)
    progress = Progress(sys.stdout.isatty())
    with file.open("w") as log:
        line = [*pip, "-C", f"build-dir={folder}", *arguments]
        run = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        assert run.stdout is not None
        for text in run.stdout:
            log.write(text)
            progress.update(text)
    run.wait()
    progress.ends()
    text = file.read_text(errors="replace").splitlines()
    if run.returncode:
        print("\n".join(text[-LINES_SHOWN:]), f"The build failed; all of it is in {file}", sep="\n", file=sys.stderr)
    else:
        print("".join(f"{line}\n" for line in text if "warning:" in line), end="")
        print(f"Built and installed in {time.monotonic() - began:.0f} s")
    return run.returncode


class Progress:
    """How many of the build's targets are done: a line that is written over on a terminal, else one every quarter."""

    def __init__(self, terminal: bool) -> None:
        self._terminal = terminal
        self._quarter = 0

    def update(self, line: str) -> None:
        target = TARGET.search(line)
        if target is None:
            return
        done, of = map(int, target.groups())
        if self._terminal:
            print(f"\r  {done} of {of} ", end="", flush=True)
        elif 4 * done // of > self._quarter:
            self._quarter = 4 * done // of
            print(f"  {done} of {of}", flush=True)

    def ends(self) -> None:
        if self._terminal:
            print("\r\033[K", end="")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
