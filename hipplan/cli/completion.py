"""hipplan completion: print the script with which a shell completes verbs, options, profiles and files.

Examples:
  hipplan completion bash > ~/.local/share/bash-completion/completions/hipplan
  hipplan completion zsh > "${fpath[1]}/_hipplan"
"""

from __future__ import annotations

import argparse
from importlib import import_module

from hipplan.cli.arguments import Parser, print_document

SHELLS = ("bash", "zsh")

_FILES = ("FILE", "RESULTS", "LOCK", "PLAN", "OLD", "A", "B", "NAME=FILE", "RUNTIME", "CMD")
"""Metavars of arguments that are files, or may be."""
_PROFILES = dict.fromkeys(SHELLS, "_hipplan_profiles")


def declare(parser: Parser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="the shell to write the script for")


def run(given: argparse.Namespace) -> int:
    print_document(_script(given.shell))
    return 0


def _script(shell: str) -> str:
    import shtab

    from hipplan.cli.main import ABOUT, VERBS
    from hipplan.machines.profiles import machine_names

    parser = argparse.ArgumentParser(prog="hipplan", description=ABOUT)
    parser.add_argument("--version", action="store_true", help="print versions and libraries")
    verbs = parser.add_subparsers()
    for verb, about in VERBS.items():
        of_verb = verbs.add_parser(verb, help=about, description=about)
        import_module(f"hipplan.cli.{verb}").declare(of_verb)
        for action in of_verb._actions:
            if action.metavar in _FILES:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
            elif action.metavar == "PROFILE":
                action.complete = _PROFILES  # type: ignore[attr-defined]
    profiles = " ".join(machine_names())
    preamble = {
        "bash": f'_hipplan_profiles() {{\n  compgen -W "{profiles}" -- "$1"\n  _shtab_compgen_files "$1"\n}}',
        "zsh": f"_hipplan_profiles() {{\n  _values profile {profiles}\n  _files\n}}",
    }
    return str(shtab.complete(parser, shell, preamble=preamble[shell])).rstrip() + "\n"
