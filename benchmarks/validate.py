"""How fast is `hipplan validate`? Ratios measured side by side in one process, on the same file.

    python benchmarks/validate.py [--objects 10000] [--rounds 7]

Prints the median of the rounds' ratios: load (read, validate, cross-check) against PyYAML's own C loader,
growth from 10,000 to 20,000 objects, the whole command against check-jsonschema with the published schema (where
that is installed), and the start of `validate` and `preview` against a process that makes one pydantic model.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from hipplan.files import strict_json
from hipplan.language.loader import load
from hipplan.show.schema import plan_schema

CHUNK = "64MiB"
ONE_MODEL = "import yaml, pydantic\nclass Model(pydantic.BaseModel):\n    number: int\nModel(number=1)"
"""What any command that reads YAML with pydantic does before it begins."""


def plan_of(objects: int) -> str:
    """A plan that writes out `objects` objects: half allocations, half mappings, as a generator would."""
    half = objects // 2
    lines = ["hipplan: 1", "devices:", "  gpu: {count: 8}", "allocations:"]
    lines += [f"  layer_{i}: {{device: gpu.{i % 8}, size: {CHUNK}, granularity: recommended}}" for i in range(half)]
    lines += ["reservations:", "  model:", "    mappings:"]
    lines += [
        f"      - {{allocation: layer_{i}, at: {i * 64 * 2**20}, access: {{gpu.{i % 8}: rw}}}}" for i in range(half)
    ]
    return "\n".join(lines) + "\n"


def timed(work: Callable[[], object]) -> float:
    gc.collect()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def ratio(ours: Callable[[], object], theirs: Callable[[], object], rounds: int) -> tuple[float, float, float]:
    """Medians of ours, theirs and of the ratio, taken in turns so that both see the same machine."""
    pairs = [(timed(ours), timed(theirs)) for _ in range(rounds)]
    a, b = zip(*pairs, strict=True)
    return statistics.median(a), statistics.median(b), statistics.median(x / y for x, y in pairs)


def started(*arguments: str) -> Callable[[], object]:
    """A fresh process. It may keep compiled files, as an installed package does."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, *arguments]
    return lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--objects", type=int, default=10_000)
    options.add_argument("--rounds", type=int, default=7)
    given = options.parse_args()
    with TemporaryDirectory() as folder:
        plan, big, small, schema = (
            Path(folder) / name for name in ("plan.yaml", "big.yaml", "small.yaml", "schema.json")
        )
        plan.write_text(plan_of(given.objects))
        big.write_text(plan_of(2 * given.objects))  # three times as many are past the limit of one document
        small.write_text(plan_of(4))
        load(small)

        ours, theirs, times = ratio(
            lambda: load(plan), lambda: yaml.load(plan.read_text(), yaml.CSafeLoader), given.rounds
        )
        print(f"load, {given.objects} objects: {ours:.3f} s, PyYAML's C loader {theirs:.3f} s")
        print(f"  ratio {times:.2f}, limit 1.30")
        larger, _, times = ratio(lambda: load(big), lambda: load(plan), 1)
        print(f"load, {2 * given.objects} objects: {larger:.3f} s\n  {times:.1f} x as long for 2 x the objects")
        if importlib.util.find_spec("check_jsonschema") is None:
            print("check-jsonschema is not installed: pip install check-jsonschema")
        else:
            schema.write_text(strict_json.dumps(plan_schema()))
            ours, theirs, times = ratio(
                started("-m", "check_jsonschema", "--schemafile", str(schema), str(plan)),
                started("-m", "hipplan", "validate", str(plan)),
                max(1, given.rounds // 3),
            )
            print(f"check-jsonschema, {given.objects} objects: {ours:.3f} s, hipplan validate {theirs:.3f} s")
            print(f"  ratio {times:.2f}, limit at least 4.00")
        for verb, more, limit in (("validate", (), "1.40"), ("preview", ("--machine", "mi300x-8"), "2.00")):
            ours, theirs, times = ratio(
                started("-c", "from hipplan.cli.main import main; main()", verb, str(small), *more),
                started("-c", ONE_MODEL),
                3 * given.rounds,
            )
            print(f"hipplan {verb} of a small plan: {ours:.3f} s, yaml and one pydantic model: {theirs:.3f} s")
            print(f"  ratio {times:.2f}, limit {limit}")


if __name__ == "__main__":
    main()
