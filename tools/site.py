"""Hooks of the documentation site (mkdocs.yml): the files of the repository's root are pages of it, too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = {name: f"{name.lower()}.md" for name in ("CHANGELOG", "ARCHITECTURE", "CONTRIBUTING")} | {"README": "index.md"}
"""File of the root -> page."""
_LINK = re.compile(r"(\]\()([^)#\s]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages of the root."""
    from mkdocs.structure.files import File

    for name, page in PAGES.items():
        text = (ROOT / f"{name}.md").read_text("utf-8")
        files.append(File.generated(config, page, content=_LINK.sub(_from_root, text)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Links of docs/*.md out of the folder, as ../CONTRIBUTING.md."""
    return _LINK.sub(_from_docs, markdown)


def _from_root(link: re.Match[str]) -> str:
    return link[1] + _page(link[2]).removeprefix("docs/")


def _from_docs(link: re.Match[str]) -> str:
    return link[1] + (_page(link[2][3:]) if link[2].startswith("../") else link[2])


def _page(target: str) -> str:
    return PAGES.get(target.removesuffix(".md"), target)
