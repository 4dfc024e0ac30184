"""hipplan explain: what a diagnostic means, why, a failing and a mended example."""

from __future__ import annotations

from argparse import Namespace

from hipplan.cli.arguments import Parser, WrongUsage


def declare(parser: Parser) -> None:
    parser.add_argument("code", metavar="HPnnn", help="the code of a diagnostic")


def run(given: Namespace) -> int:
    from hipplan.codes import CODES
    from hipplan.explain import explain

    page = explain(given.code)
    if page is None:
        raise WrongUsage(f"there is no code {given.code}; codes run from {min(CODES)} to {max(CODES)}")
    print(page, end="")
    return 0
