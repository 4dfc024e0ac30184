"""Recognizes files of hipplan's other kinds, to explain what was given instead of the expected kind."""

from __future__ import annotations

import re
from typing import Any

from hipplan.errors import Diagnostic

_KINDS = {
    "plan": ("a plan", "`hipplan apply FILE` takes it, and so do validate, preview and lock"),
    "experiment": ("an experiment", "`hipplan experiment run FILE` takes it, and so do validate and fmt"),
    "results": ("results of an experiment", "`hipplan experiment report FILE` shows them"),
    "lock": ("a lock", "`hipplan apply PLAN --locked FILE` and `hipplan lock PLAN --check FILE` take it"),
    "profile": ("a machine profile", "`--machine FILE` takes it"),
    "variables": ("a file of variables", "`--var-file FILE` takes it"),
    "record": ("a record of an apply", "`hipplan replay FILE` shows it"),
    "report": ("a report in JSON", "it is for other programs; hipplan does not read it"),
    "checkpoint": ("a file of tensors", "`hipplan import safetensors FILE` writes a plan for it"),
}
"""Kind -> (its name, what to do with it)."""

_MADE_BY = {
    "lock": "`hipplan lock PLAN -o FILE` writes one",
    "profile": "`hipplan machine > FILE` writes one",
    "record": "`hipplan apply PLAN --record FILE` writes one",
    "results": "`hipplan experiment run FILE` writes them",
    "experiment": "it begins with `hipplan_experiment: 1`",
    "variables": "write one line per variable, such as `layers: 80`",
}
_KEYS = {
    "hipplan": "plan",
    "hipplan_experiment": "experiment",
    "hipplan_lock": "lock",
    "weight_map": "checkpoint",
    "format_version": "report",
}
_BEGINS = re.compile(
    r"""\{"event":[ ](?:(?P<record>"apply")|(?P<results>"repetition"))|"""
    r"""\{"(?P<report>format_version|event)"|(?P<lock>hipplan_lock):"""
)


def says(text: bytes, key: bytes) -> bool:
    """Whether a document seems to have this key at its top; the YAML is not parsed. key: a pattern."""
    return re.search(rb"^(?:\xef\xbb\xbf)?\{?[\"']?" + key + rb"[\"']?[ \t]*:", text, re.MULTILINE) is not None


def beginning(wanted: str) -> str:
    """How to get a file of this kind."""
    return _MADE_BY.get(wanted, "a plan begins with `hipplan: 1`")


def instead(name: str, text: str, data: Any, wanted: str) -> Diagnostic | None:
    """HP014 if a document is of another kind than is wanted. data: None if the text cannot be read."""
    kind = _kind(name, text, data)
    if kind in ("", wanted):
        return None
    what, use = _KINDS[kind]
    want = _KINDS[wanted][0]
    made = f"; {_MADE_BY[wanted]}" if wanted in _MADE_BY else ""
    return Diagnostic("HP014", f"{name} is {what}, not {want}", why=f"this needs {want}{made}", hint=use)


def _kind(name: str, text: str, data: Any) -> str:
    if isinstance(data, dict):
        if kind := {"apply": "record", "repetition": "results"}.get(str(data.get("event"))):
            return kind
        if isinstance(data.get("devices"), list) and "hipplan" not in data:
            return "profile"
        return next((kind for key, kind in _KEYS.items() if key in data), "")
    if name.endswith((".safetensors", ".npy")):
        return "checkpoint"
    begins = _BEGINS.match(re.sub(r"\A(#.*\n)*", "", text[:10_000]))
    return str(begins.lastgroup) if begins else ""
