# ruff: noqa: N999 - a verb's module has the verb's name
"""hipplan import: write a plan for a checkpoint, from the headers of its files; or for a model, from its config.json.

safetensors: the plan has every tensor and loads it. model: FILE is a folder with a config.json, or that file; the
plan has the weights, a key/value cache and pinned staging on each device of a machine, the cache as large as fits. No
tensor is read. With --tp N tensors and cache are split over N devices, as docs/contents.md and docs/models.md say.
A plan that was edited since it was written is overwritten with --force only.
Exit code: 0 done, 2 a file that cannot be read, is damaged, or would be lost, 3 the machine cannot hold the model: how
much it lacks.

Examples:
  hipplan import safetensors model.safetensors -o plan.yaml
  hipplan import safetensors model.safetensors.index.json --tp 8 -o plan.yaml
  hipplan import model Llama-3.1-8B --machine h200-1 -o Llama-3.1-8B/plan.yaml
  hipplan import model config.json --tp 8 --machine mi300x-8 --kv 64GiB --reserve 5%
"""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from hipplan.cli.arguments import (
    Parser,
    WrongUsage,
    integer,
    machine_option,
    not_empty,
    not_over,
    output_option,
    runtime_option,
    show_warnings,
    sized_by,
    write_output,
)
from hipplan.errors import printable
from hipplan.files.stamped import require_unedited, stamped
from hipplan.plain import counted
from hipplan.units import about_size, format_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hipplan.language.serving import Model
    from hipplan.machines.machine import Machine
    from hipplan.program.open_sizes import KeptFree

_OF_MODELS = ("machine", "runtime", "kv", "kv_dtype", "reserve", "staging")


def declare(parser: Parser) -> None:
    parser.add_argument("kind", choices=("safetensors", "model"), help="what FILE is")
    parser.add_argument(
        "source", metavar="FILE", type=not_empty, help="model.safetensors, its index, a config.json or its folder"
    )
    parser.add_argument(
        "--tp", type=integer, default=1, metavar="N", help="tensor parallel over N devices (default: 1)"
    )
    parser.add_argument("--kv", metavar="SIZE", help="the cache on each device; fill (default): as large as fits")
    parser.add_argument("--kv-dtype", metavar="DTYPE", help="of the cache (default: the model's)")
    about = "left on each device for others: a share of its memory, or a size (default: 10%%)"
    parser.add_argument("--reserve", metavar="SHARE", help=about)
    parser.add_argument("--staging", metavar="SIZE", help="pinned memory for each device (default: 64MiB)")
    machine_option(parser)
    runtime_option(parser)
    output_option(parser, "PLAN")
    parser.add_argument("--force", action="store_true", help="overwrite a plan that was edited")


def run(given: Namespace) -> int:
    if not 1 <= given.tp <= 1024:
        raise WrongUsage(f"--tp must be 1 to 1024 devices, not {given.tp}")
    folder = Path() if given.output == "-" else Path(given.output).parent
    if given.kind == "model":
        return _model(given, str(folder))
    for name in _OF_MODELS:
        if getattr(given, name) is not None:
            raise WrongUsage(f"--{name.replace('_', '-')} is for `import model`")
    from hipplan.language.checkpoints import plan_of

    not_over([("--output", given.output)], given.source)
    _check_output(given)
    imported = plan_of(given.source, given.tp, str(folder))
    _write(given, imported.text)
    weights = _weights(imported.tensors, imported.size, imported.size_each, given.tp)
    _print_summary(given, [weights])
    _print_whole(given.tp, imported.whole, imported.split)
    return 0


def _model(given: Namespace, folder: str) -> int:
    from io import StringIO

    from hipplan.cli.measured import machine_of
    from hipplan.language.loader import load
    from hipplan.language.serving import plan_text, read_model
    from hipplan.lowering.compiler import compile  # noqa: A004
    from hipplan.program.fitting import fitted

    reserve = _reserve(given.reserve or "10%")
    wanted = None if given.kv in (None, "fill") else _size("--kv", given.kv)
    if wanted == 0:
        raise WrongUsage("--kv: must be more than 0")
    staging = _size("--staging", given.staging or "64MiB")
    model = read_model(given.source, given.tp, given.kv_dtype or "")
    not_over([("--output", given.output)], model.decoder.source, model.files or None)
    _check_output(given)
    machine = machine_of(given)
    cache = fitted(model, machine, wanted, reserve)
    about = _about(model, machine.name, given.reserve or "10%", is_filled=wanted is None)
    text = plan_text(model, cache, staging, folder, about)
    with sized_by(HP303="--staging"):
        warnings = compile(load(StringIO(text)), machine).warnings
    _write(given, text)
    _print_summary(given, _summary(model, machine, cache, staging, reserve))
    show_warnings(warnings, Namespace(strict=False))
    _print_whole(given.tp, model.whole, sum(bool(weight.split) for weight in model.weights))
    if not model.files:
        message = (
            "notice: there are no .safetensors files beside it: shapes are those of config.json, and nothing is loaded"
        )
        print(message, file=sys.stderr)
    return 0


def _check_output(given: Namespace) -> None:
    if given.output != "-" and not given.force:
        require_unedited(given.output, "the plan")


def _write(given: Namespace, text: str) -> None:
    write_output(given.output, stamped(text, f"Written by hipplan import {given.kind}"), "the plan")


def _print_summary(given: Namespace, lines: Iterable[str]) -> None:
    """Print what is in the plan, unless standard output has the plan itself."""
    for line in (f"wrote {given.output}", *(f"  {line}" for line in lines)) if given.output != "-" else ():
        print(printable(line))


def _summary(model: Model, machine: Machine, cache: int, staging: int, reserve: KeptFree) -> Iterator[str]:
    from hipplan.language.checkpoints import size_each
    from hipplan.language.serving import PAGE_TOKENS

    on_each, pages = _on_each(model.ranks), cache // model.page_bytes
    yield _weights(len(model.weights), model.weight_bytes, size_each(model.weights, model.ranks), model.ranks)
    tokens = f"{counted(pages, 'page')}, {counted(pages * PAGE_TOKENS, 'token')}"
    yield f"key/value cache: {tokens}, {about_size(cache)} {on_each}"
    left = min(reserve.of(device.memory or 0) for device in machine.devices[: model.ranks])
    yield f"reserved for others: {about_size(left)} {on_each} of {machine.name}"
    if staging:
        yield f"staging: {format_size(staging)} of pinned memory for each device"


def _weights(tensors: int, size: int, each: int, devices: int) -> str:
    split = f", {about_size(each)} {_on_each(devices)}" if devices > 1 else ""
    return f"weights: {counted(tensors, 'tensor')}, {about_size(size)}{split}"


def _on_each(devices: int) -> str:
    return f"on each of {devices} devices" if devices > 1 else "on the device"


def _about(model: Model, machine: str, reserve: str, *, is_filled: bool) -> list[str]:
    kind = "the largest that fits" if is_filled else "as asked for, which fits"
    message = f"{len(model.weights)} tensors, {model.weight_bytes} bytes."
    return [
        f"{message} Written by hipplan import model; docs/models.md says how.",
        f"The key/value cache is {kind} {printable(machine)} with {reserve} of each device reserved for others.",
    ]


def _print_whole(devices: int, whole: Sequence[str], split: int) -> None:
    if whole:
        few = ", ".join([*whole[:3], *["..."] * (len(whole) > 3)])
        message = f"warning: {devices} does not divide {len(whole)} of {len(whole) + split} tensors that would be split"
        print(printable(f"{message}; each device gets a full copy: {few}"), file=sys.stderr)


def _size(option: str, text: str) -> int:
    from hipplan.units import SizeError, parse_size

    try:
        return parse_size(text)
    except SizeError as error:
        raise WrongUsage(f"{option}: {error}" + (f"; {error.hint}" if error.hint else "")) from None


def _reserve(text: str) -> KeptFree:
    from hipplan.program.open_sizes import KeptFree
    from hipplan.units import SizeError, is_share, parse_share

    if not is_share(text):
        return KeptFree(size=_size("--reserve", text))
    try:
        return KeptFree(share=parse_share(text))
    except SizeError:
        raise WrongUsage(f"--reserve: {text[:40]!r} is no share: write it as 10%, or as a size") from None
