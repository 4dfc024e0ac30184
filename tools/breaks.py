"""Breaks hipplan in one place at a time, and says which tier of the tests notices.

python tools/breaks.py --seed 38 --python 30 --cpp 10     the same seed chooses the same breaks, from the whole tree
python tools/breaks.py --list                             prints the breaks and runs nothing

A break changes one operator, one constant or one line. Each is first put to `make quick`; what quick misses to
`make test`; of what survives that, at most five to `make reliability`. A tier that does not end within an hour has
noticed, too. Sources are restored after each break, also after ^C.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SWAPS = {
    " == ": " != ", " != ": " == ", " <= ": " < ", " >= ": " > ", " < ": " <= ", " > ": " >= ",
    " + ": " - ", " - ": " + ", " * ": " + ",
    " // ": " * ", " and ": " or ", " or ": " and ", " && ": " || ", " || ": " && ", "not ": "", "True": "False",
    "False": "True", "true": "false", "false": "true", " in ": " not in ", "min(": "max(", "max(": "min(",
    " is not ": " is ", " | ": " & ", "nullptr": "reinterpret_cast<void*>(1)",
}  # fmt: skip
NUMBER = re.compile(r"(?<![\w.])(\d+)(?![\w.])")
STOP = "ARGUMENTS=-x -p no:cacheprovider"
TIERS = {"quick": ["make", "quick", STOP], "test": ["make", "test", STOP], "reliability": ["make", "reliability"]}
LONGEST_S = 3600
SURVIVORS = 5
"""So many breaks that `make test` misses are put to `make reliability`, which takes long."""


@dataclass(frozen=True)
class Break:
    """One line of one file, before and after."""

    path: Path
    line: int
    before: str
    after: str

    def __str__(self) -> str:
        after = self.after.strip() or "(nothing)"
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.before.strip()}  ->  {after}"

    def write(self) -> None:
        lines = self.path.read_text().split("\n")
        lines[self.line - 1] = self.after
        self.path.write_text("\n".join(lines))


def code_lines_of_python(path: Path) -> set[int]:
    """The lines of statements in functions: no docstrings, no declarations, no imports."""
    numbers: set[int] = set()
    for function in ast.walk(ast.parse(path.read_text())):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for statement in function.body:
                if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
                    numbers |= set(range(statement.lineno, (statement.end_lineno or statement.lineno) + 1))
    return numbers


def code_lines_of_cpp(path: Path) -> set[int]:
    """The indented lines: no comments, no preprocessor, no declarations at the outermost level."""
    numbers = set()
    for number, line in enumerate(path.read_text().split("\n"), 1):
        if re.match(r" {2,}[^/*\s]", line) and not line.lstrip().startswith("#"):
            numbers.add(number)
    return numbers


def changes(line: str, python: bool) -> Iterator[str]:
    """Every way to break this line."""
    code, mark, comment = line.partition("  #" if python else "  //")
    for before, after in SWAPS.items():
        for place in re.finditer(re.escape(before), code):
            if not _in_text(code, place.start()):
                yield code[: place.start()] + after + code[place.end() :] + mark + comment
    for place in NUMBER.finditer(code):
        if not _in_text(code, place.start()):
            yield code[: place.start()] + str(int(place[1]) + 1) + code[place.end() :] + mark + comment
    if re.match(r"\s+[\w.\[\]()>*:-]+( [-+|]?= .*|\(.*\));?$", code):  # a whole assignment or call
        yield re.match(r"\s*", code)[0] + ("pass" if python else ";")  # type: ignore[index]


def _in_text(code: str, place: int) -> bool:
    return code[:place].count('"') % 2 == 1 or code[:place].count("'") % 2 == 1


def sensible(broken: Break) -> bool:
    """Whether Python can still read it; a compiler says that of C++."""
    if broken.path.suffix != ".py":
        return True
    lines = broken.path.read_text().split("\n")
    lines[broken.line - 1] = broken.after
    try:
        ast.parse("\n".join(lines))
    except SyntaxError:
        return False
    return True


def choose(files: list[Path], count: int, chance: random.Random) -> list[Break]:
    """So many breaks, each line of code as likely as any other."""
    python = files[0].suffix == ".py"
    numbers = code_lines_of_python if python else code_lines_of_cpp
    places = [(path, number) for path in files for number in sorted(numbers(path))]
    chosen: list[Break] = []
    while len(chosen) < count:
        path, number = chance.choice(places)
        line = path.read_text().split("\n")[number - 1]
        ways = [Break(path, number, line, after) for after in changes(line, python)]
        ways = [way for way in ways if sensible(way)]
        if ways and all((path, number) != (other.path, other.line) for other in chosen):
            chosen.append(chance.choice(ways))
    return chosen


def compiles() -> bool:
    return subprocess.run(["make", ".venv/installed"], cwd=ROOT, capture_output=True).returncode == 0


def noticed(tier: str) -> str:
    """The first test of a tier that fails, or nothing."""
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(TIERS[tier], cwd=ROOT, stdout=output, stderr=output, start_new_session=True)
        try:
            if process.wait(LONGEST_S) == 0:
                return ""
        except subprocess.TimeoutExpired:
            return "it does not end"
        finally:
            with contextlib.suppress(ProcessLookupError):  # a broken program may leave processes behind
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        text = output.read()
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", text, re.M)
    return failed[1] if failed else text.strip().rpartition("\n")[2] or "it does not start"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=38)
    parser.add_argument("--python", type=int, default=30, help="breaks in Python")
    parser.add_argument("--cpp", type=int, default=10, help="breaks in C++ that compile")
    parser.add_argument("--tiers", default="quick,test,reliability")
    parser.add_argument("--after", type=int, default=0, help="breaks of an earlier run: goes on after so many")
    parser.add_argument("--list", action="store_true", help="print the breaks, and run nothing")
    given = parser.parse_args()
    clean = subprocess.run(["git", "diff", "--quiet", "HEAD"], cwd=ROOT).returncode == 0
    if not clean and not given.list:
        sys.exit("the working tree has changes that are not committed: a break could be taken for one of them")

    chance = random.Random(given.seed)
    sources = {
        "python": sorted((ROOT / "hipplan").rglob("*.py")),
        "cpp": sorted(path for path in (ROOT / "cpp").rglob("*.cpp") if path.name != "abi_check.cpp"),
    }
    breaks = [*choose(sources["python"], given.python, chance), *choose(sources["cpp"], 4 * given.cpp, chance)]
    if given.list:
        print(*breaks, sep="\n")
        return 0

    tiers = given.tiers.split(",")
    counts = dict.fromkeys([*tiers, "survived"], 0)
    left = {".py": given.python, ".cpp": given.cpp}
    for broken in breaks[given.after :]:
        if left[broken.path.suffix]:
            left[broken.path.suffix] -= _one(broken, tiers, counts)
    print("  ".join(f"{name}: {count}" for name, count in counts.items()))
    return 0


def _one(broken: Break, tiers: list[str], counts: dict[str, int]) -> bool:
    """Puts a break to the tiers, in turn; whether it could be built."""
    text = broken.path.read_text()
    began = time.monotonic()
    try:
        broken.write()
        if broken.path.suffix != ".py" and not compiles():
            return False
        for tier in tiers:
            if tier == "reliability" and counts["survived"] + counts["reliability"] >= SURVIVORS:
                continue
            if test := noticed(tier):
                break
        else:
            tier, test = "survived", ""
    finally:
        broken.path.write_text(text)
        if broken.path.suffix != ".py":
            compiles()
    counts[tier] += 1
    print(f"{tier:<11} {time.monotonic() - began:5.0f} s  {broken}  {test}", flush=True)
    return True


if __name__ == "__main__":
    raise SystemExit(main())
