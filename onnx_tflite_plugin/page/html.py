"""HTML document of the page, which needs no other file."""

from __future__ import annotations

import json
from html import escape
from importlib.resources import files

from onnx_tflite_plugin.page.content import Page

_SCRIPTS = ("vendor/dagre.min.js", "vendor/cytoscape.min.js", "network.js", "measurements.js", "page.js")
_LICENSES = ("vendor/cytoscape.LICENSE", "vendor/dagre.LICENSE")


def html(page: Page) -> str:
    """Return the HTML document with its data, style, scripts and their licenses."""
    data = json.dumps(vars(page), allow_nan=False, default=str).replace("<", "\\u003c")
    return _read("page.html").format(
        title=escape(page.title),
        style=_read("page.css"),
        data=data,
        scripts="\n".join(f"<script>{_script(name)}</script>" for name in _SCRIPTS),
        licenses=escape("\n\n".join(f"{name.partition('/')[2]}\n{_read(name)}" for name in _LICENSES)),
    )


def _script(name: str) -> str:
    """Return a script with every end tag escaped."""
    return _read(name).replace("</script", "<\\/script")


def _read(name: str) -> str:
    return (files("onnx_tflite_plugin.page") / name).read_text(encoding="utf-8")
