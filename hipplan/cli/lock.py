"""hipplan lock: write down what a plan becomes on a machine: digest, variables, devices, sizes and addresses.

`hipplan apply --locked` then makes exactly that in every run, or reports why it cannot. With --machine no driver is
touched. Exit code: 0 done, 2 the plan is invalid or (--check) not the locked one, 3 the machine cannot hold it or is
not the locked one.

Examples:
  hipplan lock plan.yaml -o plan.lock
  hipplan lock plan.yaml --machine mi300x-8 -o plan.lock
  hipplan lock plan.yaml --check plan.lock
"""

from __future__ import annotations

from argparse import Namespace

from hipplan.cli.arguments import (
    Parser,
    WrongUsage,
    not_empty,
    not_over,
    output_option,
    plan_file,
    quiet_option,
    show_warnings,
    source_of,
    write_output,
)
from hipplan.cli.variables import load_plan, plan_options
from hipplan.errors import ExitCode, printable


def declare(parser: Parser) -> None:
    plan_file(parser)
    output_option(parser, "LOCK")
    parser.add_argument(
        "--check", metavar="LOCK", type=not_empty, help="write nothing; check whether this lock still matches"
    )
    about = "the address of the first reservation, such as 0x680000000000 (default: derived from the plan's name)"
    parser.add_argument("--address-base", metavar="ADDRESS", help=about)
    plan_options(parser)
    quiet_option(parser)


def run(given: Namespace) -> int:
    from hipplan.cli.measured import machine_of
    from hipplan.lowering.compiler import compile as compile_plan
    from hipplan.program.lock import Locked, lock, sizes_of, to_yaml

    if given.check is not None and (given.output != "-" or given.address_base is not None):
        raise WrongUsage("--check writes nothing and chooses no address: leave --output and --address-base out")
    not_over([("--output", given.output)], given.file, given.machine, *given.var_file)
    base = _address(given.address_base)
    plan = load_plan(source_of(given.file), given)
    not_over([("--output", given.output)], *plan.files)
    checked = None if given.check is None else Locked(given.check)
    program = compile_plan(plan, machine_of(given), sizes=sizes_of(checked))
    show_warnings(program.warnings, given)
    if checked is not None:
        checked.placed(program)
        if not given.quiet:
            print(printable(f"{given.check} is up to date"))
        return ExitCode.OK
    write_output(given.output, to_yaml(lock(program, base)), "the lock")
    return ExitCode.OK


def _address(text: str | None) -> int | None:
    from hipplan.program.addresses import ADDRESSES_END
    from hipplan.units import PAGE

    if text is None:
        return None
    try:
        address = int(text, 0)
    except ValueError:
        address = -1
    if not 0 < address < ADDRESSES_END or address % PAGE:
        raise WrongUsage(f"--address-base: {text!r} is not an address such as 0x680000000000, a multiple of {PAGE}")
    return address
