"""A fuzz target for atheris: any bytes are a good plan or give diagnostics, through `validate` and `fmt`.

    pip install atheris
    make fuzz SECONDS=60            # or: python tests/fuzz/fuzz_plan.py CORPUS -max_total_time=60

What it finds is written to crash-*; put it into tests/unit/test_bad_input.py.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

import atheris

# An editable install has a finder of its own, which atheris' hook does not see: the sources are found by path.
sys.meta_path[:] = [finder for finder in sys.meta_path if "Redirecting" not in type(finder).__name__]
sys.path.insert(0, str(Path(__file__).parents[2]))

with atheris.instrument_imports(include=["hipplan"]):
    from hipplan.errors import HipplanError
    from hipplan.language.canonical import canonical
    from hipplan.language.loader import load
    from hipplan.language.source import load_yaml
    from hipplan.lowering.compiler import compile as compile_plan
    from hipplan.machines.profiles import load_machine

MACHINE = load_machine("mi300x-8")


def one_input(data: bytes) -> None:
    for use in (lambda: compile_plan(load(io.BytesIO(data)), MACHINE), lambda: canonical(load_yaml(io.BytesIO(data)))):
        try:
            use()
        except HipplanError as error:
            assert error.diagnostics
            assert str(error)
            assert all(diagnostic.to_json() for diagnostic in error.diagnostics)


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):  # the plans of this repository are where it begins
        corpus = Path(sys.argv[1])
        corpus.mkdir(parents=True, exist_ok=True)
        for plan in (Path(__file__).parents[2] / "plans").rglob("*.yaml"):
            (corpus / plan.name).write_bytes(plan.read_bytes())
    atheris.Setup([*sys.argv, "-max_len=4096", "-timeout=20", "-rss_limit_mb=2048"], one_input)
    atheris.Fuzz()
