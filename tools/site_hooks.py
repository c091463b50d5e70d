"""Hooks of mkdocs: version, repository link, docstrings and changelog page.

Nothing is written to ``docs/``.
"""

from __future__ import annotations

import re
from configparser import ConfigParser
from pathlib import Path
from typing import Any

from onnx_tflite_plugin.api import VERSION

ROOT = Path(__file__).parents[1]
CHANGELOG = "reference/changelog.md"
ROLE = re.compile(r":(?:attr|class|func|meth|mod):(?=<code>)")
FILE_LINK = re.compile(r"\]\(\.\./((?:\.\./)*)CHANGELOG\.md")
"""A page's link to the changelog in the repository; the group is the path from the page to ``docs/``."""
RELATIVE_LINK = re.compile(r"\[([^\]]+)\]\((?!https?://|#)([^)]+)\)")


def on_config(config: Any) -> Any:
    """Set the footer, and the link to the repository if setup.cfg has one."""
    config.copyright = f"onnx-tflite-plugin {VERSION}"
    if address := repository():
        config.repo_url = address
        config.repo_name = address.split("/", 3)[-1]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the changelog as a page."""
    from mkdocs.structure.files import File  # only in the extra docs, which the tests do not need

    text = changelog((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), repository())
    files.append(File.generated(config, CHANGELOG, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page whose links to CHANGELOG.md lead to the changelog page."""
    return FILE_LINK.sub(rf"](\1{CHANGELOG}", markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Return a page without docstring roles (``:func:`` etc.), which Markdown lacks."""
    return ROLE.sub("", html)


def repository() -> str:
    """Return the address of the repository; empty if setup.cfg has none."""
    config = ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    return config.get("onnx_tflite_plugin", "repository", fallback="").strip().rstrip("/")


def changelog(text: str, address: str) -> str:
    """Return the changelog with links that work on the site.

    Links to pages of ``docs/`` stay within the site. Links to other files lead to the repository; they become plain
    text if ``address``, the repository's address, is empty.
    """

    def link(match: re.Match[str]) -> str:
        name, path = match.groups()
        if path.startswith("docs/"):
            return f"[{name}](../{path.removeprefix('docs/')})"
        return f"[{name}]({address}/blob/main/{path})" if address else name

    return RELATIVE_LINK.sub(link, text)
