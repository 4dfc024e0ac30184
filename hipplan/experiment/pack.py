"""A folder with all that an experiment needs to run again: for the appendix of a paper."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import distributions
from pathlib import Path

from hipplan.errors import PlanError, printable
from hipplan.experiment.document import Document
from hipplan.experiment.grid import Cell
from hipplan.experiment.targets import file_of, files_of
from hipplan.files import strict_json
from hipplan.files.output import unwritten
from hipplan.language.loader import LoadedPlan, load
from hipplan.lowering.compiler import compile as compile_plan
from hipplan.machines.machine import Machine
from hipplan.machines.profiles import to_yaml as profile_text
from hipplan.machines.provenance import collect
from hipplan.program import lock

FILE_MAX = 64 << 20
"""Bytes of a file that is packed: the README names larger ones, with their checksums."""
LOCKS_MAX = 1000
_OWN = frozenset({"results.jsonl", "machine.yaml", "environment.json", "README.md"})
"""What a pack has besides copies of files, and besides locks."""


@dataclass
class Packed:
    """What was packed."""

    folder: Path
    """Where the files are put together."""
    files: list[str] = field(default_factory=list)
    """Relative to the folder."""
    left_out: list[str] = field(default_factory=list)
    """Files that are not in it, because they are too large or not there, and why."""


def pack(document: Document, results: str, machine: Machine, folder: Path) -> Packed:
    """Writes the folder, which must be new or empty: all of it, or nothing. machine: whose profile and locks it has.

    Raises PlanError: a plan has an error, a file cannot be written (HP413); MachineError: the machine cannot hold one.
    """
    plans = [(cell, load(document.plan, document.variables(cell))) for cell in document.cells]
    locks = [(cell, _lock(plan, machine)) for cell, plan in plans[:LOCKS_MAX]]
    needed = {Path(document.source.name), Path(document.plan), *_of_plans(plans), *_of_measurement(document)}
    root = Path(os.path.commonpath([path.resolve().parent for path in needed]))
    experiment = Path(document.source.name).resolve().relative_to(root)
    with _whole(folder) as part:
        packed = Packed(part)
        for path in sorted(needed):
            _copy(path.resolve(), root, packed)
        for name in packed.files:
            if name in _OWN or name.startswith("locks/"):
                why = OSError(None, "the experiment needs another file of this name")
                raise PlanError(unwritten(name, "the pack's file", why, "give that file another name or folder"))
        _copy_as(Path(results), "results.jsonl", packed)
        _write(packed, "machine.yaml", profile_text(machine))
        for number, (_, text) in enumerate(locks):
            _write(packed, f"locks/{number}.lock", text)
        _write(packed, "environment.json", _environment())
        _write(packed, "README.md", _readme(document, experiment, [cell for cell, _ in locks], packed))
    return packed


@contextmanager
def _whole(folder: Path) -> Iterator[Path]:
    """A folder whose files come to this place at the end; of an error it leaves nothing. Raises PlanError (HP413).

    They are put together beside a new one, which is then named so. One that is there stays, and they are put together
    in it: it may be a link, a file system of its own or the folder of this process, and the one around it read-only.
    """
    part, moved = folder.parent / f".hipplan-{os.urandom(8).hex()}.part", list[Path]()
    try:
        if is_there := folder.is_dir():
            part = folder / part.name
        folder.parent.mkdir(parents=True, exist_ok=True)
        if folder.exists() and any(folder.iterdir()):
            raise OSError(None, "it is not empty")
        part.mkdir()
        yield part
        if is_there:
            for path in sorted(part.iterdir()):
                moved.append(path.rename(folder / path.name))
        else:
            part.rename(folder)
    except BaseException as error:
        for path in moved:
            path.rename(part / path.name)
        if isinstance(error, OSError):
            raise PlanError(unwritten(str(folder), "the pack", error, "name a new folder")) from None
        raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _lock(plan: LoadedPlan, machine: Machine) -> str:
    return lock.to_yaml(lock.lock(compile_plan(plan, machine)))


def _of_plans(plans: Sequence[tuple[Cell, LoadedPlan]]) -> Iterator[Path]:
    """The files that the plans are of, and those that they load."""
    for _, plan in plans:
        yield from map(Path, plan.files)


def _of_measurement(document: Document) -> Iterator[Path]:
    """The function's file, the command, the Python files that they import from beside them, the lock."""
    experiment, folder = document.experiment, document.folder
    if experiment.inside is not None and (path := file_of(experiment.inside.partition(":")[0], folder)):
        yield from files_of(path)
    for argument in experiment.run or ():
        if (path := folder / argument).is_file():
            yield from files_of(path) if path.suffix == ".py" else [path]
    if experiment.locked is not None:
        yield folder / experiment.locked


def _copy(path: Path, root: Path, packed: Packed) -> None:
    name = str(path.relative_to(root))
    if not path.is_file():
        packed.left_out.append(f"{name}: it is not a file")
    elif path.stat().st_size > FILE_MAX:
        packed.left_out.append(f"{name}: {path.stat().st_size:,} bytes, sha256 {_checksum(path)}")
    else:
        _copy_as(path, name, packed)


def _copy_as(path: Path, name: str, packed: Packed) -> None:
    _add(packed, name, lambda target: shutil.copy(path, target))


def _write(packed: Packed, name: str, text: str) -> None:
    _add(packed, name, lambda target: target.write_text(text, encoding="utf-8"))


def _add(packed: Packed, name: str, write: Callable[[Path], object]) -> None:
    target = packed.folder / name
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write(target)
    except (OSError, ValueError) as error:
        hint = "nothing was packed; -o names another folder"
        raise PlanError(unwritten(name, "the pack's file", error, hint)) from None
    packed.files.append(name)


def _checksum(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def _environment() -> str:
    """What this machine is, and the versions of all Python packages."""
    packages = {item.metadata["Name"]: item.version for item in distributions() if item.metadata["Name"]}
    return strict_json.document(packages=dict(sorted(packages.items())), provenance=collect(None, None)) + "\n"


def _readme(document: Document, experiment: Path, locked: Sequence[Cell], packed: Packed) -> str:
    file = shlex.quote(str(experiment))
    run = f"hipplan experiment run {file} -o again.jsonl"
    cells = "\n".join(f"| `locks/{number}.lock` | {cell} |" for number, cell in enumerate(locked))
    left_out = "".join(f"- {reason}\n" for reason in packed.left_out)
    return f"""# {printable(document.name)}

{document.experiment.description or "An experiment."}

Run it again, in this folder:

```sh
{run}
```

Compare with what was measured first:

```sh
hipplan experiment compare results.jsonl again.jsonl
```

| file | what it is |
|---|---|
| `{experiment}` | the experiment: its plan, its cells and what runs in each |
| `results.jsonl` | what was measured, a line for each repetition, with its provenance |
| `machine.yaml` | the machine's profile: `hipplan validate {file} --machine machine.yaml` needs no GPU |
| `environment.json` | the host and the versions of all Python packages when this was packed |
| `locks/` | what the plan of each cell becomes on that machine, with its addresses: `hipplan apply --locked` |

| lock | cell |
|---|---|
{cells}
{
        f'''
Not packed:

{left_out}'''
        if left_out
        else ""
    }"""
