"""Completes the metadata of setup.cfg with what depends on where the repository lies.

The address is the setting ``repository`` of setup.cfg. While it is empty there are no project URLs, and links of the README
to other files of the repository become plain text, since an index cannot follow them.
"""

import re
from configparser import ConfigParser
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent
RELATIVE_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?://|#)([^)]+)\)")
PAGES = {"Source": "", "Documentation": "/tree/main/docs", "Changelog": "/blob/main/CHANGELOG.md", "Issues": "/issues"}


def repository() -> str:
    """Return the address of the repository, empty if it is not set."""
    config = ConfigParser()
    config.read(HERE / "setup.cfg", encoding="utf-8")
    return config.get("onnx_tflite_plugin", "repository", fallback="").strip().rstrip("/")


def long_description(address: str) -> str:
    """Return the README with links that an index can follow."""
    text = (HERE / "README.md").read_text(encoding="utf-8")
    return RELATIVE_LINK.sub(rf"[\1]({address}/blob/main/\2)" if address else r"\1", text)


if __name__ == "__main__":
    address = repository()
    setup(
        long_description=long_description(address),
        long_description_content_type="text/markdown",
        project_urls={name: address + path for name, path in PAGES.items()} if address else {},
    )
