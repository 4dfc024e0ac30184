"""Finds phrases that hipplan's text must not use: riddles, invented idioms, or words that have a plainer one.

python tools/phrases.py            # prints file:line: phrase -> what to write; exit code 1 if there is any

It reads messages, docstrings, comments, documentation and tests. A phrase is found across line breaks, in any case.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PHRASES = {
    "that is none": "an invalid ...",
    "what there is": "name it",
    "gives everybody back": "releases",
    "is his to": "the caller may",
    "the way from": "the change from",
    "who looks at it": "the views of it",
    "who hears of": "who is notified of",
    "hear of it": "are notified",
    "hears of it": "is notified",
    "nobody hears": "is not reported",
    "nobody has asked": "without close()",
    "nobody may": "no device may",
    "for nobody": "unused",
    "in vain": "fails, or times out",
    "has no business": "is not allowed",
    "it is of another": "it belongs to another",
    "is what it was": "is unchanged",
    "as it was before": "unchanged",
    "is as it was": "is unchanged",
    "put back as it was": "restored",
    "is there again": "is restored",
    "are there again": "are restored",
    "takes away": "removes, revokes",
    "made anew": "recreated",
    "apply anew": "apply again",
    "apply the plan anew": "apply the plan again",
    "is told of": "is reported",
    "be told of": "be reported",
    "says so in a": "reports",
    "whoever asks": "the caller",
    "whoever has": "the owner",
    "given up on": "abandoned",
    "left behind": "leaked, left over",
    "has gone again": "has ended",
    "leave it out": "remove it",
    "is no number": "is not a number",
    "is no record": "is not a record",
    "is no file": "is not a file",
    "is no group": "is not a group",
    "is no object": "is not an object",
    "cannot be looked at": "cannot be viewed",
    "let go of it": "released it, detached",
    "looked for at": "searched at",
    "makes no new view": "cannot create new views",
    "a mistake is shown": "errors point at",
    "somebody who": "a process that, a caller that",
    "nobody has heard": "is not reported yet",
    "nobody can tell": "is unknown",
    "a mistake, which is told": "an error, which is reported",
    "people write who": "other tools use",
    "where nobody names": "by default",
    "gives everything back": "releases everything",
    "given back": "freed",
    "give back": "free",
    "put back": "restored",
    "taken back": "undone",
    "takes it back": "undoes it",
    "what leads": "the change from",
    "worth a word": "reported",
    "has the last word": "wins, decides",
    "who looks": "the caller",
    "whoever looks": "the caller",
    "what there was": "name it",
    "is there all the same": "exists anyway",
    "in its place meanwhile": "instead",
    "nobody is told": "is not reported",
    "comes to nothing": "fails",
    "makes nothing of": "ignores",
}
"""Phrase -> what to write instead. Add those that are gone, so that they stay away."""

_TEXTS = ("*.py", "*.pyi", "*.md", "*.hpp", "*.cpp", "*.h")
_FOLDERS = (
    "hipplan",
    "cpp",
    "tests",
    "docs",
    "benchmarks",
    "README.md",
    "CHANGELOG.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
)
_GAP = r"\s+(?:(?:#:?|//[/!]?<?)\s*)?"
"""Between two words: a space, or a line break and the sign that begins the next line of a comment."""
_BANNED = re.compile(
    r"(?<!\w)(?:" + "|".join(_GAP.join(map(re.escape, phrase.split())) for phrase in PHRASES) + r")(?!\w)", re.I
)


def found(text: str) -> list[tuple[int, str]]:
    """(line, phrase) of each banned phrase in a text."""
    return [
        (text.count("\n", 0, match.start()) + 1, re.sub(_GAP, " ", match[0]).lower())
        for match in _BANNED.finditer(text)
    ]


def everywhere() -> list[str]:
    """One line for each banned phrase in hipplan's code and documentation."""
    files = subprocess.run(["git", "ls-files", *_FOLDERS], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    paths = [ROOT / name for name in files.splitlines()]
    return [
        f"{path.relative_to(ROOT)}:{line}: '{phrase}' -> {PHRASES[phrase]}"
        for path in paths
        if path.exists() and any(path.match(pattern) for pattern in _TEXTS)
        for line, phrase in found(path.read_text("utf-8"))
    ]


if __name__ == "__main__":
    print("\n".join(lines := everywhere()), end="\n" if lines else "")
    sys.exit(bool(lines))
