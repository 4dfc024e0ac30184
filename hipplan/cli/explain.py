"""hipplan explain: what a diagnostic means, its cause, a wrong and a corrected example.

Examples:
  hipplan explain HP101
  hipplan explain --list
"""

from __future__ import annotations

from argparse import Namespace

from hipplan.cli.arguments import Parser, WrongUsage


def declare(parser: Parser) -> None:
    parser.add_argument("code", metavar="HPnnn", nargs="?", help="the code of a diagnostic")
    parser.add_argument("--list", action="store_true", help="list all codes, one per line")


def run(given: Namespace) -> int:
    from hipplan.codes import CODES
    from hipplan.explain import explain

    if (given.code is None) != given.list:
        raise WrongUsage("give a code such as HP101, or --list")
    if given.list:
        print("\n".join(f"{code}  {title}" for code, title in CODES.items()))
        return 0
    page = explain(given.code)
    if page is None:
        raise WrongUsage(f"there is no code {given.code}; codes run from {min(CODES)} to {max(CODES)}")
    print(page, end="")
    return 0
