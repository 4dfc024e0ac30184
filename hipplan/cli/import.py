# ruff: noqa: N999 - a verb's module has the verb's name
"""hipplan import: write a plan for a checkpoint, from the headers of its files.

The plan holds every tensor and loads it; no tensor is read. With --tp N the tensors are split over N devices, as
docs/contents.md says. Exit code: 0 done, 2 a file that cannot be read or is damaged.

Examples:
  hipplan import safetensors model.safetensors -o plan.yaml
  hipplan import safetensors model.safetensors.index.json --tp 8 -o plan.yaml
"""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from hipplan.cli.arguments import Parser, WrongUsage, not_empty, not_over, output_option, write_output
from hipplan.errors import printable


def declare(parser: Parser) -> None:
    parser.add_argument("kind", choices=("safetensors",), help="the format of the checkpoint")
    parser.add_argument(
        "source", metavar="FILE", type=not_empty, help="model.safetensors, or model.safetensors.index.json"
    )
    parser.add_argument("--tp", type=int, default=1, metavar="N", help="tensor parallel over N devices (default: 1)")
    output_option(parser, "PLAN")


def run(given: Namespace) -> int:
    from hipplan.language.checkpoints import plan_of

    if not 1 <= given.tp <= 1024:
        raise WrongUsage(f"--tp {given.tp}: 1 to 1024 devices")
    not_over([("--output", given.output)], given.source)
    folder = Path() if given.output == "-" else Path(given.output).parent
    text, whole, split = plan_of(given.source, given.tp, str(folder))
    write_output(given.output, text, "the plan")
    if whole:
        few = ", ".join([*whole[:3], *["..."] * (len(whole) > 3)])
        told = f"warning: {given.tp} does not divide {len(whole)} of {len(whole) + split} tensors that would be split"
        print(printable(f"{told}; each device gets a full copy: {few}"), file=sys.stderr)
    return 0
