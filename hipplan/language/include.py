"""include: - a plan made of several files.

Write `include: kv.yaml`, or a list of files, at the top of a plan. An included file is a complete plan with vars,
devices and named objects, and may include further files. Paths of includes are relative to the file that names them and
must stay below the folder of the root plan; files of contents are relative to that folder. Each file is read once; a
name defined in two files is an error. Only a variable may be defined again, by a file that includes the one that
defines it: the including file decides, so each file can have its own defaults and be checked alone.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from hipplan.errors import Diagnostic, PlanError, suggest
from hipplan.language.findings import Findings
from hipplan.language.kinds import says
from hipplan.language.model.plan import Plan
from hipplan.language.source import BYTES_MAX, Source, load_yaml
from hipplan.plain import called, shown

NOUNS = ("devices", "allocations", "reservations", "streams", "buffers", "regions", "contents")
FILES_MAX = 100


def keys_taken(path: tuple[Hashable, ...]) -> tuple[str, ...]:
    """Keys that may be written at a path, but are consumed by the expansion."""
    if not path:
        return ("include",)
    is_tensor = len(path) == 4 and path[::2] == ("regions", "tensors")
    is_thing = len(path) == 2 and path[0] in NOUNS
    return ("each",) if is_tensor or is_thing or isinstance(path[-1], int) else ()


class NamedObject(NamedTuple):
    """One named object of one noun, as written in one file."""

    source: Source
    name: str
    value: Any


def plans_below(folder: Path, *, parts: bool = False) -> list[Path]:
    """The plans and experiments of a folder, at any depth: YAML files that say `hipplan:` or `hipplan_experiment:`.
    Without `parts` not those that another one includes.

    Skips folders and files whose names start with a dot, pipes and devices.
    """
    paths: list[Path] = []
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        named = [Path(place, name) for name in sorted(files) if not name.startswith(".")]
        paths += [path for path in named if path.suffix in (".yaml", ".yml")]
    return plans_among(paths, parts=parts)


def plans_among(files: Iterable[Path], *, parts: bool = False) -> list[Path]:
    """Returns the files that are plans or experiments. Without `parts`, not those that another one includes."""
    plans = [path for path in files if path.is_file() and _says(path, b"hipplan(?:_experiment)?")]
    if parts:
        return plans
    included = {part for path in plans if _says(path, b"include") for part in _included_by(path)}
    return [path for path in plans if _real(path) not in included]


def _says(path: Path, key: bytes) -> bool:
    """Whether a file seems to have this key at its top; the YAML is not parsed."""
    try:
        with path.open("rb") as file:
            text = file.read(BYTES_MAX)
    except OSError:
        return False
    return says(text, key)


def _is_stream(path: Path) -> bool:
    """Whether the file is a pipe or device: reading it may block or never end."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):  # reading it reports a better error
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _included_by(path: Path) -> list[Path]:
    try:
        data = load_yaml(path).data
    except PlanError:
        return []
    named = data.get("include", []) if isinstance(data, dict) else []
    names = [name for name in (named if isinstance(named, list) else [named]) if isinstance(name, str)]
    return [_real(path.parent / name) for name in names if "\0" not in name]


def _real(path: Path) -> Path:
    """The path with links resolved. Path.resolve() raises for circular links; opening such a file reports them."""
    return Path(os.path.realpath(path))


class Documents:
    """The root document and what it includes; names are checked, nothing is expanded yet."""

    def __init__(self, root: Source, anywhere: bool = False) -> None:
        self.root = root
        self.findings = Findings(root.findings)
        self.nouns: dict[str, dict[str, NamedObject]] = {}
        """In the order of NOUNS, so that devices come first: `each` refers to them."""
        self.complete = True
        """All files could be read, so an undefined name is an error."""
        self._anywhere = anywhere
        self._folder = _real(Path(root.name)).parent
        self.texts: list[Any] = [root.data]
        """The data of the files, in the order in which they were read."""
        self.read: set[Path] = {_real(Path(root.name))}
        self.vars = self._gather(root)
        self.nouns = {noun: self.nouns[noun] for noun in NOUNS if noun in self.nouns}

    def _gather(self, source: Source) -> dict[str, NamedObject]:
        """Collect a file's objects, included ones first, as if they replaced the include. Returns the variables."""
        data = source.data
        if not isinstance(data, dict):
            return {}
        own = data.get("vars", {})
        if not isinstance(own, dict):
            summary = f"'vars' must be a mapping, not {called(own)}"
            self._report("HP103", summary, source, ("vars",), hint="write vars: {layers: 80}")
            own, self.complete = {}, False
        variables: dict[str, NamedObject] = {}
        named = data.get("include", [])
        for index, name in enumerate(named if isinstance(named, list) else [named]):
            path = ("include", index) if isinstance(named, list) else ("include",)
            included = self._open(source, name, path)
            if included is not None:
                for variable, entry in self._gather(included).items():
                    if variable in own:
                        variables.setdefault(variable, entry)  # only its place; this file's value wins
                    else:
                        self._add("vars", variables, entry, f"rename one of them, or define it in {source.name} too")
        for noun in ("vars", *NOUNS):
            things = data.get(noun)
            if isinstance(things, dict):
                if noun != "vars":
                    self.nouns.setdefault(noun, {})  # also without any good name
                for name, value in things.items():
                    if not isinstance(name, str):
                        summary = f"a key of {noun} is {called(name)}: {shown(name)}"
                        self._report("HP011", summary, source, (noun,), hint="keys must be text")
                    elif noun == "vars":
                        variables[name] = NamedObject(source, name, value)
                    else:
                        self._add(noun, self.nouns[noun], NamedObject(source, name, value))
        return variables

    def _add(
        self, noun: str, things: dict[str, NamedObject], entry: NamedObject, hint: str = "rename one of them"
    ) -> None:
        first = things.setdefault(entry.name, entry)
        if first is not entry:
            where = first.source.span((noun, entry.name), key=True)
            self._report(
                "HP204",
                f"the name '{entry.name}' is used twice",
                entry.source,
                (noun, entry.name),
                key=True,
                label=f"also in {where}" if where else "",
                hint=hint,
            )

    def _open(self, source: Source, name: Any, path: tuple[Hashable, ...]) -> Source | None:
        if not isinstance(name, str) or not name or "\0" in name:
            self._report("HP025", "include takes the path of a plan, or a list of them", source, path)
            self.complete = False
            return None
        file = _real(_real(Path(source.name)).parent / name)
        if not self._anywhere and not file.is_relative_to(self._folder):
            self._report(
                "HP025",
                f"{name} lies outside the folder of the plan",
                source,
                path,
                why="a plan from elsewhere must not read your files",
                hint="move it below that folder, or allow it: --include-anywhere, load(..., include_anywhere=True)",
            )
        elif file in self.read:
            self._report("HP025", f"{name} is included already", source, path, hint="include each file once")
            return None
        elif len(self.read) >= FILES_MAX:
            self._report("HP025", f"more than {FILES_MAX} files", source, path)
        else:
            self.read.add(file)
            included = self._load(file, source, name, path)
            self.texts.append(included and included.data)
            self.complete = self.complete and included is not None
            return included
        self.complete = False
        return None

    def _load(self, file: Path, source: Source, name: str, path: tuple[Hashable, ...]) -> Source | None:
        if _is_stream(file):
            self._report("HP025", f"{name} is a pipe or a device", source, path, hint="includes must be regular files")
            return None
        try:
            included = load_yaml(file, str(Path(source.name).parent / name), budget=self.root.budget)
        except PlanError as error:
            if any(diagnostic.code == "HP023" for diagnostic in error.diagnostics):
                raise
            unreadable = any(diagnostic.code == "HP001" for diagnostic in error.diagnostics)
            if unreadable:
                self._report("HP025", error.diagnostics[0].summary, source, path)
            else:
                self.findings.extend(error.diagnostics)
            return None
        allowed = ("hipplan", "name", "description", "include", "vars", *NOUNS)
        data = included.data
        if not isinstance(data, dict):
            self._report("HP025", f"{name} is not a plan", included, (), hint="an included file is a mapping")
            return None
        if data.get("hipplan") != 1 or data["hipplan"] is True:
            self._report(
                "HP108",
                "included plans need their version too",
                included,
                ("hipplan",),
                hint="write hipplan: 1",
            )
        for key in data.keys() - set(allowed):
            refused = ("HP025", f"an included plan cannot have '{key}'", "move it to the root plan")
            if key not in Plan.model_fields:
                hint = suggest(key, allowed) or f"allowed keys are {', '.join(allowed)}"
                refused = ("HP101", f"there is no key '{key}' here", hint)
            self._report(*refused[:2], included, (key,), key=True, hint=refused[2])
        for noun in NOUNS:
            if noun in data and not isinstance(data[noun], dict):
                self._report("HP103", f"'{noun}' must be a mapping", included, (noun,))
        return included

    def _report(
        self,
        code: str,
        summary: str,
        source: Source,
        path: tuple[Hashable, ...],
        *,
        key: bool = False,
        **more: str,
    ) -> None:
        self.findings.add(Diagnostic(code, summary, source.span(path, key=key), **more))  # type: ignore[arg-type]
