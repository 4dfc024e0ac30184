"""Hooks of the documentation site (mkdocs.yml): the files of the repository's root are pages of it, too."""

from __future__ import annotations

import re
import subprocess
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


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The link to the repository is that of the clone that the site is built from."""
    done = subprocess.run(["git", "remote", "get-url", "origin"], cwd=ROOT, capture_output=True, text=True)
    if address := web_address(done.stdout.strip()):
        config["repo_url"] = address
    return config


def web_address(remote: str) -> str:
    """Where a browser finds a repository, from the address that git uses; empty if it is not on the web."""
    match = re.fullmatch(r"(?:https://|ssh://)?(?:[^@/]*@)?([\w.-]+\.\w+)(?::\d+)?[:/](.+?)(?:\.git)?/?", remote)
    return f"https://{match[1]}/{match[2]}" if match else ""


def on_page_content(html: str, page: Page, **_: object) -> str:
    """The package calls this function machine (hipplan/__init__.py); a method of another class would be ambiguous."""
    return html.replace(">load_machine<", ">machine<") if page.file.src_uri == "api.md" else html


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Links of docs/*.md out of the folder, as ../CONTRIBUTING.md."""
    return _LINK.sub(_from_docs, markdown)


def _from_root(link: re.Match[str]) -> str:
    return link[1] + _page(link[2]).removeprefix("docs/")


def _from_docs(link: re.Match[str]) -> str:
    return link[1] + (_page(link[2][3:]) if link[2].startswith("../") else link[2])


def _page(target: str) -> str:
    return PAGES.get(target.removesuffix(".md"), target)
