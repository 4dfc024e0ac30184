"""hipplan machine: measure this machine as a profile; list, show and compare profiles.

Examples:
  hipplan machine > box.yaml
  hipplan machine list
  hipplan machine show mi300x-8
  hipplan machine --diff mi300x-8 box.yaml
  hipplan machine --without-gpu --machine mi300x-8
"""

from __future__ import annotations

from argparse import Namespace

from hipplan.cli.arguments import Parser, WrongUsage, format_option, machine_option, print_document, runtime_option
from hipplan.errors import printable
from hipplan.files import strict_json


def declare(parser: Parser) -> None:
    about = "list the profiles that come with hipplan, or show one; default: measure this machine"
    parser.add_argument("action", nargs="?", choices=("list", "show"), help=about)
    parser.add_argument("name", nargs="?", metavar="PROFILE", help="what to show: a shipped name or a YAML file")
    parser.add_argument("--diff", nargs=2, metavar=("A", "B"), help="show where two profiles differ")
    machine_option(parser)
    runtime_option(parser)
    format_option(parser)


def run(given: Namespace) -> int:
    as_json = given.format == "json"
    if (given.action == "show") != (given.name is not None):
        raise WrongUsage("show needs the name of a profile" if given.action == "show" else "list takes no name")
    if given.diff is not None and given.action is not None:
        raise WrongUsage(f"--diff compares two profiles: leave {given.action} out")
    if given.runtime is not None and (given.diff or given.action):
        raise WrongUsage("--runtime is for measuring this machine")
    if given.machine is not None:
        raise WrongUsage(f"--machine is for --without-gpu; `hipplan machine show {given.machine}` shows a profile")
    if given.diff is not None:
        _diff(given.diff[0], given.diff[1], as_json)
    elif given.action == "list":
        _list(as_json)
    elif given.action == "show":
        _show(given.name, as_json)
    else:
        _measure(given.runtime, as_json)
    return 0


def _measure(runtime: str | None, as_json: bool) -> None:
    from hipplan.cli.measured import measured
    from hipplan.machines.profiles import to_yaml

    machine = measured(runtime)
    from hipplan import _core

    if as_json:
        body = machine.model_dump(exclude_none=True)
        print(strict_json.document(built_with=_core.compiler, machine=body))
        return
    print(f"# measured by hipplan {_core.__version__}, built with {_core.compiler}")
    print_document(to_yaml(machine))


def _list(as_json: bool) -> None:
    from hipplan.machines.profiles import load_machine, machine_names

    known = {name: load_machine(name) for name in machine_names()}
    if as_json:
        rows = [{"name": name, "description": m.description, "devices": len(m.devices)} for name, m in known.items()]
        print(strict_json.document(machines=rows))
        return
    width = max(map(len, known))
    for name, profile in known.items():
        print(f"{name:<{width}}  {profile.description}")


def _show(name: str, as_json: bool) -> None:
    from hipplan.machines.profiles import load_machine, to_yaml

    profile = load_machine(name)
    if as_json:
        print(strict_json.document(machine=profile.model_dump(exclude_none=True)))
    else:
        print_document(to_yaml(profile))


def _diff(a: str, b: str, as_json: bool) -> None:
    from hipplan.machines.profiles import diff, load_machine

    differences = diff(load_machine(a), load_machine(b))
    if as_json:
        rows = [{"figure": figure, "a": left, "b": right} for figure, left, right in differences]
        print(strict_json.document(differences=rows))
        return
    for figure, *both in differences:
        left, right = (str(value).lower() if value is None or isinstance(value, bool) else value for value in both)
        print(printable(f"{figure}: {left} -> {right}"))
