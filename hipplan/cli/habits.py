"""Verbs and options of other commands -> hipplan's own. Used for hints in messages."""

from __future__ import annotations

import os

_CHECK = "hipplan validate checks a plan"
_UNDO = "hipplan apply frees everything when it ends: press ^C, or use --once; hipplan down ends a holder"
_HOLDS = "hipplan ps lists the holders, hipplan verify --list shows the layouts that are held"
_APPLY = "hipplan apply creates what a plan describes; hipplan up keeps it for other processes"
_NEVER_ASKS = "hipplan never prompts: remove it"
_SHOWS = "hipplan preview shows the steps and changes nothing"

_VERBS = {
    **dict.fromkeys(("plan", "show", "dry-run", "dryrun", "compile"), _SHOWS),
    **dict.fromkeys(("check", "lint", "test"), _CHECK),
    **dict.fromkeys(("create", "run", "start", "exec", "alloc", "allocate"), _APPLY),
    **dict.fromkeys(("destroy", "delete", "stop", "free", "teardown", "rollback", "undo"), _UNDO),
    **dict.fromkeys(("status", "state", "list", "ls", "get", "describe", "refresh"), _HOLDS),
    "diff": "hipplan preview NEW --from OLD shows what would change",
    "update": "hipplan preview NEW --from OLD shows what would change; Python's layout.update() changes it",
    "format": "hipplan fmt formats plans",
    "init": "there is nothing to initialise: write a plan (docs/tutorial.md) and try hipplan preview",
    "machines": "hipplan machine list",
    "profiles": "hipplan machine list",
}
_OPTIONS = {
    **dict.fromkeys(("--dry-run", "--plan", "-n", "--what-if"), _SHOWS),
    **dict.fromkeys(("-y", "--yes", "-auto-approve", "--auto-approve", "--force"), _NEVER_ASKS),
    **dict.fromkeys(("-f", "--file", "--filename"), "the plan is an argument of its own: hipplan {verb} plan.yaml"),
    **dict.fromkeys(("-var", "-v", "--set"), "set a variable of the plan with --var NAME=VALUE"),
    **dict.fromkeys(("--json", "-json"), "--format json"),
    "-o": "--format json is for programs; a shell writes it to a file: > FILE",
    "--output": "--format json is for programs; a shell writes it to a file: > FILE",
    "--device": "the plan chooses its devices, under devices:",
    "--gpu": "the plan chooses its devices, under devices:",
    "--verbose": "hipplan apply --record FILE records every call",
}


def for_verb(verb: str) -> str:
    """The command that was probably meant by this verb; empty if unknown."""
    if verb.endswith((".yaml", ".yml")) or os.path.isfile(verb):  # noqa: PTH113  # before pathlib is needed
        return f"name a command: hipplan validate {verb}, or preview, or apply"
    return _VERBS.get(verb.lower(), "")


def for_option(option: str, verb: str) -> str:
    """The same for an option that the verb does not have."""
    return _OPTIONS.get(option, "").format(verb=verb)
