"""Completion scripts for shells, made from the parsers of the verbs; docs/generate.py writes them into the package."""

from __future__ import annotations

import argparse
from importlib import import_module

import shtab

from hipplan.cli.main import ABOUT, VERBS
from hipplan.codes import CODES
from hipplan.machines.profiles import machine_names

_FILES = ("FILE", "RESULTS", "LOCK", "PLAN", "OLD", "A", "B", "NAME=FILE", "RUNTIME", "CMD")
"""Metavars of arguments that are files, or may be."""


def completion(shell: str) -> str:
    """The script for a shell."""
    parser = argparse.ArgumentParser(prog="hipplan", description=ABOUT)
    parser.add_argument("--version", action="store_true", help="print versions and libraries")
    verbs = parser.add_subparsers()
    for verb, about in VERBS.items():
        of_verb = verbs.add_parser(verb, help=about, description=about)
        import_module(f"hipplan.cli.{verb}").declare(of_verb)
        for action in of_verb._actions:
            if action.metavar in _FILES:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
            elif action.metavar in _FUNCTIONS:
                action.complete = _FUNCTIONS[action.metavar]  # type: ignore[attr-defined]
    return str(shtab.complete(parser, shell, preamble=_PREAMBLE)).rstrip() + "\n"


_FUNCTIONS = {
    "PROFILE": {"bash": "_hipplan_profiles", "zsh": "_hipplan_profiles", "fish": "(_hipplan_profiles)"},
    "HOLDER": {"bash": "_hipplan_holders", "zsh": "_hipplan_holders", "fish": "(_hipplan_holders)"},
    "HPnnn": {"bash": "_hipplan_codes", "zsh": "_hipplan_codes", "fish": "(_hipplan_codes)"},
}
"""Metavar -> the function of each shell that completes it."""
_PREAMBLE = {
    "bash": f"""_hipplan_profiles() {{
  compgen -W "{" ".join(machine_names())}" -- "$1"
  _shtab_compgen_files "$1"
}}
_hipplan_holders() {{
  compgen -W "$(hipplan ps --quiet 2>/dev/null)" -- "$1"
}}
_hipplan_codes() {{
  compgen -W "{" ".join(CODES)}" -- "$1"
}}""",
    "zsh": f"""_hipplan_profiles() {{
  _values profile {" ".join(machine_names())}
  _files
}}
_hipplan_holders() {{
  compadd -- $(hipplan ps --quiet 2>/dev/null)
}}
_hipplan_codes() {{
  compadd -- {" ".join(CODES)}
}}""",
    "fish": f"""function _hipplan_profiles
  printf '%s\\n' {" ".join(machine_names())}
  __fish_complete_path (commandline -ct)
end
function _hipplan_holders
  hipplan ps --quiet 2>/dev/null
end
function _hipplan_codes
  printf '%s\\n' {" ".join(CODES)}
end""",
}
