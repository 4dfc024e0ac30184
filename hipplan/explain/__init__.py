"""What `hipplan explain HPnnn` prints: a page for each code, with a failing and a working example."""

from __future__ import annotations

from importlib import resources

from hipplan.codes import CODES


def explain(code: str) -> str | None:
    """The page of an error code, as Markdown; None if there is no such code. hp104 and 104 mean HP104."""
    code = f"HP{code}" if code.isdigit() else code.upper()
    if code not in CODES:
        return None
    return (resources.files("hipplan") / "explain" / f"{code}.md").read_text("utf-8")
