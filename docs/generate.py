"""Writes what is generated: the plan reference, the error pages, the coverage of HIP.

python docs/generate.py            # writes
python docs/generate.py --check    # only prints what would change; exit code 1 if anything would
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

import hipplan.language.expand
import hipplan.language.include
from hipplan.codes import CODES
from hipplan.experiment.model import Experiment, Metric
from hipplan.explain import explain
from hipplan.language.base import AutoSize, Offset, OpenSize, Size, SizeOrShare
from hipplan.language.model.describe import field_docs, models_below
from hipplan.language.model.plan import Plan
from hipplan.layout.layout import Layout
from hipplan.layout.verbs import VERBS

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))
from docs.coverage import coverage  # noqa: E402
from tests.amd import library  # noqa: E402
from tests.conformance import differences  # noqa: E402
from tests.conformance.amd_differences import AMD  # noqa: E402

_C_INTRODUCTION = """# hipplan.h

Generated from the header by `docs/generate.py`; its comments are the reference. [C programs](c.md) shows its use.
"""
_WORDS = {int: "integer", float: "fraction", str: "text", bool: "true or false"}
_SIZES = {
    get_args(sized)[1]: kind
    for sized, kind in (
        (Offset, "bytes"),
        (Size, "bytes"),
        (SizeOrShare, "bytes or a percentage"),
        (OpenSize, "bytes, fill or a percentage"),
        (AutoSize, "auto, bytes, fill or a percentage"),
    )
}
_INTRODUCTION = """# The plan, key by key

Generated from the models by `docs/generate.py`; their docstrings are the source.

A plan is one YAML 1.2 document. Unknown keys are errors. Sizes are whole numbers of bytes, or a number with a unit:
`64MiB`, `1.5GiB` (KiB MiB GiB TiB PiB are powers of 1024, KB MB GB TB PB powers of 1000). Names are letters, digits,
`_` and `-`; dots may join several parts. `hipplan explain HPnnn` explains an error.
"""


def plan_reference() -> str:
    """docs/plan-reference.md."""
    parts = [_INTRODUCTION, _section(Plan, "The document")]
    parts += [_section(model, name) for name, model in models_below(Plan).items()]
    parts += [
        "## Variables and repetition\n",
        _as_text(hipplan.language.expand),
        "## Plans of several files\n",
        _as_text(hipplan.language.include),
    ]
    return "\n".join(parts)


def experiment_reference() -> str:
    """docs/experiment-reference.md."""
    source = "Generated from the models by `docs/generate.py`; their docstrings are the source."
    head = f"# Experiments, key by key\n\n{source}\n"
    return "\n".join([head, _section(Experiment, "The file"), _section(Metric, "Metric")])


def errors() -> str:
    """docs/errors.md."""
    pages = [str(explain(code)).replace("# HP", "## HP", 1) for code in CODES]
    head = "# Error codes\n\nGenerated from `hipplan/explain/`. `hipplan explain HPnnn` prints one page.\n"
    return "\n".join([head, *pages])


def _section(model: type[BaseModel], title: str) -> str:
    docs = field_docs(model)
    lines = [f"## {title}\n", f"{' '.join((model.__doc__ or '').split())}\n"]
    for name, field in model.model_fields.items():
        lines.append(f"### `{field.alias or name}`: {_described(field)}\n")
        lines.append(re.sub(r"^(Errors|Source):", r"- \1:", docs[name], flags=re.M) + "\n")
    return "\n".join(lines)


def _described(field: FieldInfo) -> str:
    """The kind of value and whether it must be there: `bytes, required`, `minimum | recommended, default minimum`."""
    sized = [_SIZES[part] for part in field.metadata if part in _SIZES]
    kind = sized[0] if sized else _kind(field.annotation)
    if field.is_required():
        return f"{kind}, required"
    default = field.get_default(call_default_factory=True)
    if default is None or isinstance(default, (dict, list, BaseModel)):
        return kind
    return f"{kind}, default {str(default).lower() if isinstance(default, bool) else default}"


def _kind(annotation: Any) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if annotation in _WORDS:
        return _WORDS[annotation]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    if origin is dict:
        return f"mapping of name to {_kind(inner[1])}"
    if origin is list:
        return f"list of {_kind(inner[0])}"
    if origin is not None and origin.__name__ == "Literal":
        return " | ".join(map(str, inner))
    if hasattr(annotation, "__metadata__"):
        sized = [_SIZES[part] for part in annotation.__metadata__ if part in _SIZES]
        return sized[0] if sized else _kind(inner[0])
    if not inner:
        raise TypeError(f"no word for {annotation}")
    return " or ".join(_kind(part) for part in inner if part is not type(None))


def _as_text(module: ModuleType) -> str:
    """A module's docstring is Markdown as it stands."""
    return (module.__doc__ or "").strip() + "\n"


def hardware() -> str:
    """docs/hardware.md with the table of differences in its place; the rest is written by hand."""
    table = differences.table(differences.CUDA, "CUDA, through libhipcuda")
    return _with_tables(DOCS / "hardware.md", {"tests/conformance/differences.py": table})


def amd() -> str:
    """docs/amd.md with what ran on AMD's library, and where the library does what a test cannot expect."""
    declared = differences.table(AMD, "AMD's library")
    tables = {"docs/amd-library.json": library.table(), "tests/conformance/amd_differences.py": declared}
    return _with_tables(DOCS / "amd.md", tables)


def transactions() -> str:
    """docs/transactions.md with the table of verbs."""
    return _with_tables(DOCS / "transactions.md", {"hipplan/layout/verbs.py": _verbs()})


def _verbs() -> str:
    """What each call that changes a layout does and needs, from the table that the engine reads."""
    lines = [
        "| call | what it does | while bytes are copied | in an attached layout | what it may lose |",
        "|---|---|---|---|---|",
    ]
    for verb in {verb.call: verb for verb in VERBS.values() if verb.call}.values():
        does = getattr(Layout, verb.call).__doc__.partition("\n")[0].partition(" Raises ")[0]
        turn = "waits; in `on_bytes` refused" if verb.takes_turn else "goes on"
        attached = "allowed" if verb.if_attached else "refused (HP420)"
        loses = "what `lose=` names, else refused (HP423)" if verb.may_lose else "what its arguments say"
        lines.append(f"| `{verb.call}` | {does} | {turn} | {attached} | {loses} |")
    return "\n".join(lines)


def _with_tables(page: Path, tables: dict[str, str]) -> str:
    """A page with each table behind the comment that names its source."""
    text = page.read_text()
    for source, table in tables.items():
        head, begin, rest = text.partition(f"<!-- from {source} -->\n")
        _, end, tail = rest.partition("<!-- end -->\n")
        assert begin, f"{page.name} has no place for {source}"
        assert end, f"{page.name} has no end of {source}"
        text = f"{head}{begin}\n{table}\n\n{end}{tail}"
    return text


def c_reference() -> str:
    header = (DOCS.parent / "cpp" / "c" / "hipplan.h").read_text()
    return f"{_C_INTRODUCTION}\n```c\n{header}```\n"


def generated() -> dict[Path, str]:
    """Every generated file and what belongs into it."""
    return {
        DOCS / "plan-reference.md": plan_reference(),
        DOCS / "experiment-reference.md": experiment_reference(),
        DOCS / "errors.md": errors(),
        DOCS / "coverage.md": coverage(),
        DOCS / "c-reference.md": c_reference(),
        DOCS / "hardware.md": hardware(),
        DOCS / "transactions.md": transactions(),
        DOCS / "amd.md": amd(),
    }


def main() -> int:
    stale = {path: text for path, text in generated().items() if not path.exists() or path.read_text() != text}
    for path, text in stale.items():
        print(f"{'stale' if '--check' in sys.argv else 'written'}: {path.name}")
        if "--check" not in sys.argv:
            path.write_text(text)
    return int(bool(stale) and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
