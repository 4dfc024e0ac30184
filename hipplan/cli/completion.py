"""hipplan completion: print the script with which a shell completes verbs, options, files, profiles, holders and
codes.

Examples:
  hipplan completion bash > ~/.local/share/bash-completion/completions/hipplan
  hipplan completion zsh > "${fpath[1]}/_hipplan"
  hipplan completion fish > ~/.config/fish/completions/hipplan.fish
"""

from __future__ import annotations

import argparse
from importlib import import_module

from hipplan.cli.arguments import Parser, print_document

SHELLS = ("bash", "zsh", "fish")

_FILES = ("FILE", "RESULTS", "LOCK", "PLAN", "OLD", "A", "B", "NAME=FILE", "RUNTIME", "CMD")
"""Metavars of arguments that are files, or may be."""
_COMPLETED_BY = {"PROFILE": "_hipplan_profiles", "HOLDER": "_hipplan_holders", "HPnnn": "_hipplan_codes"}
"""Metavar -> the function of each shell's script that completes it."""


def declare(parser: Parser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="the shell to write the script for")


def run(given: argparse.Namespace) -> int:
    print_document(_script(given.shell))
    return 0


def _script(shell: str) -> str:
    import shtab

    from hipplan.cli.main import ABOUT, VERBS

    parser = argparse.ArgumentParser(prog="hipplan", description=ABOUT)
    parser.add_argument("--version", action="store_true", help="print versions and libraries")
    verbs = parser.add_subparsers()
    for verb, about in VERBS.items():
        of_verb = verbs.add_parser(verb, help=about, description=about)
        import_module(f"hipplan.cli.{verb}").declare(of_verb)
        for action in of_verb._actions:
            if action.metavar in _FILES:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
            elif function := _COMPLETED_BY.get(str(action.metavar)):
                called = f"({function})" if shell == "fish" else function
                action.complete = {shell: called}  # type: ignore[attr-defined]
    return str(shtab.complete(parser, shell, preamble=_functions(shell))).rstrip() + "\n"


def _functions(shell: str) -> str:
    """The functions that complete the names of profiles, of holders that run, and of codes."""
    from hipplan.codes import CODES
    from hipplan.machines.profiles import machine_names

    profiles, codes, holders = " ".join(machine_names()), " ".join(CODES), "hipplan ps --quiet 2>/dev/null"
    return {
        "bash": f"""_hipplan_profiles() {{
  compgen -W "{profiles}" -- "$1"
  _shtab_compgen_files "$1"
}}
_hipplan_holders() {{
  compgen -W "$({holders})" -- "$1"
}}
_hipplan_codes() {{
  compgen -W "{codes}" -- "$1"
}}""",
        "zsh": f"""_hipplan_profiles() {{
  _values profile {profiles}
  _files
}}
_hipplan_holders() {{
  compadd -- $({holders})
}}
_hipplan_codes() {{
  compadd -- {codes}
}}""",
        "fish": f"""function _hipplan_profiles
  printf '%s\\n' {profiles}
  __fish_complete_path (commandline -ct)
end
function _hipplan_holders
  {holders}
end
function _hipplan_codes
  printf '%s\\n' {codes}
end""",
    }[shell]
