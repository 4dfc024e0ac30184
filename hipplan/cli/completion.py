"""hipplan completion: print the script with which a shell completes verbs, options, files, profiles, holders and
codes.

Examples:
  hipplan completion bash > ~/.local/share/bash-completion/completions/hipplan
  hipplan completion zsh > "${fpath[1]}/_hipplan"
  hipplan completion fish > ~/.config/fish/completions/hipplan.fish
"""

from __future__ import annotations

from argparse import Namespace

from hipplan.cli.arguments import Parser, print_document

SHELLS = ("bash", "zsh", "fish")


def declare(parser: Parser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="the shell to write the script for")


def run(given: Namespace) -> int:
    from importlib import resources

    print_document((resources.files("hipplan") / "completions" / f"hipplan.{given.shell}").read_text("utf-8"))
    return 0
