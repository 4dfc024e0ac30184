"""hipplan config: where hipplan.h and its library are, for the build of a C or C++ program (docs/c.md).

Without an option all is printed, a name and a value on each line. With several, each is on a line of its own.

    cc program.c -I$(hipplan config --include-dir) $(hipplan config --libs) -o program

Examples:
  hipplan config
  hipplan config --cmake-dir
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from hipplan.cli.arguments import Parser

_ABOUT = {
    "include-dir": "the folder of hipplan.h",
    "libs": "what to link with, as arguments of a compiler",
    "cmake-dir": "the folder for CMake's hipplan_DIR",
    "pkg-config-dir": "the folder for PKG_CONFIG_PATH",
}


def declare(parser: Parser) -> None:
    for name, about in _ABOUT.items():
        parser.add_argument(f"--{name}", action="append_const", const=name, dest="wanted", help=about)


def run(given: Namespace) -> int:
    from hipplan import _core  # raises HP408 in the pure-Python hipplan, which has no library

    folder = Path(_core.__file__).parent
    values = {
        "include-dir": str(folder / "include"),
        "libs": f"-L{folder} -Wl,-rpath,{folder} -lhipplan",
        "cmake-dir": str(folder / "cmake" / "hipplan"),
        "pkg-config-dir": str(folder / "pkgconfig"),
    }
    for name in given.wanted or ():
        print(values[name])
    if not given.wanted:
        print("".join(f"{name}: {value}\n" for name, value in values.items()), end="")
    return 0
