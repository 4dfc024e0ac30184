"""A C program that does with hipplan.h what a test tells it."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from hipplan.machines.simulator import library_path, package_folder

SOURCE = Path(__file__).with_name("program.c")
LIBRARY = package_folder() / "libhipplan.so"
HEADERS = package_folder() / "include"
STANDARDS = {"c11": ("cc", "c"), "c++17": ("c++", "c++")}
"""Standard -> (compiler, its language)."""
_SANITIZERS = {"address,undefined": "-fsanitize=address,undefined", "thread": "-fsanitize=thread"}

_AMD_S_OWN = re.compile(r"^Warning: Resource leak detected by SharedSignalPool.*\n", re.M)
"""What AMD's library says at its end."""


def build(folder: Path, standard: str = "c11") -> Path:
    """Compile the program with the host's compiler. Skips the test if there is none."""
    command, language = STANDARDS[standard]
    compiler = shutil.which(command)
    if compiler is None:
        pytest.skip(f"needs a compiler: {command}")
    program = folder / f"program-{standard}"
    sanitizer = _SANITIZERS.get(os.environ.get("HIPPLAN_SANITIZER", ""), "")
    subprocess.run(
        [compiler, "-x", language, f"-std={standard}", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g",
         *filter(None, [sanitizer]), f"-I{HEADERS}", SOURCE, "-x", "none", LIBRARY, f"-Wl,-rpath,{LIBRARY.parent}",
         "-ldl", "-pthread", "-o", program],
        check=True,
    )  # fmt: skip
    return program


class Program:
    """A running program. Used as a context manager, at whose end it must exit with 0."""

    def __init__(self, path: Path, before: Sequence[str] = (), **settings: str | None) -> None:
        """before: a command that runs it. settings: of its environment; None: without that variable."""
        every = {**os.environ, "LIBRARY": str(library_path()), "HIPSIM_LOG": "none", **settings}
        environment = {name: value for name, value in every.items() if value is not None}
        self.process = subprocess.Popen(
            [*shlex.split(os.environ.get("HIPPLAN_RUN_UNDER", "")), *before, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *raised: object) -> None:
        out, err = self.process.communicate(timeout=120)
        err = _AMD_S_OWN.sub("", err)
        if raised[0] is None:
            assert (self.process.returncode, out, err) == (0, "", ""), err

    def begin(self, *words: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(words) + "\n")
        self.process.stdin.flush()

    def lines(self) -> list[str]:
        """The answer to what was begun."""
        assert self.process.stdout is not None
        lines: list[str] = []
        while (line := self.process.stdout.readline()) != ".\n":
            if not line:
                raise AssertionError(f"the program has ended: {lines}, {self.process.communicate()}")
            lines.append(line.rstrip("\n"))
        return lines

    def do(self, *words: str) -> list[str]:
        self.begin(*words)
        return self.lines()

    def text(self, *words: str) -> tuple[int, str]:
        """The code and the text of an error, of a command with one result."""
        code, *lines = self.do(*words)
        return int(code), "\n".join(lines).rstrip("\n")

    def attach(self, name: str = "w", *options: str) -> None:
        code, text = self.text("attach", name, *options)
        assert code == 0, text


def alive(program: Program) -> list[object]:
    """All memory that the simulator of a program has for it. The descriptors of a holder's memory are not its own."""
    ledger = json.loads("\n".join(program.do("ledger")))
    allocations = [one for one in ledger["allocations"] if one["references"]]
    return [*allocations, *ledger["reservations"], *ledger["mappings"]]


def by_name(lines: list[str]) -> Mapping[str, list[str]]:
    """The lines of `list`: name -> words."""
    return {line.split()[0]: line.split() for line in lines}
