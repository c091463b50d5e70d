"""Write op packs with deliberate faults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from textwrap import dedent, indent
from typing import Any

IMPORTS = """
import os, sys
import onnx_ir as ir
from dataclasses import replace
from onnx_tflite_plugin.api import *

class Quit(BaseException):
    pass

class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no text")
"""
HANDLER = {"handlers": "CUSTOM.Evil = evil_pack:evil"}
FUSION = {**HANDLER, "fusions": "evil = evil_pack:fused"}
HOOKS = {"hooks": "evil = evil_pack:hooks"}
PRINTS = "print('ho ho'); os.write(1, b'hum hum')"
PRINTED = ("ho ho", "hum hum")


@dataclass(frozen=True)
class Hostile:
    """The distribution ``evil-pack`` with the module ``evil_pack``, usually with a handler of ``CUSTOM.Evil``.

    ``says``: what the message, or the warning, must hold besides the pack's name. ``converts``: a model that uses the
    pack converts nevertheless. ``warns``: unrelated models are warned too. ``placed``: the message tells file and
    line in the pack.
    """

    what: str
    source: str
    entries: Mapping[str, str]
    says: tuple[str, ...]
    converts: bool = False
    warns: bool = False
    placed: bool = True
    requires: str = ""

    @property
    def module(self) -> str:
        return IMPORTS + self.source

    @property
    def entry_points(self) -> str:
        return "".join(f"[onnx_tflite_plugin.{group}]\n{lines}\n" for group, lines in self.entries.items())


def handler(body: str = "return ctx.ops.Abs(x)", **declared: str) -> str:
    """Return the source of a handler."""
    keywords = _keywords({"max_version": "1", "layout": "Transparent()", **declared})
    return f'@handler("CUSTOM.Evil", {keywords})\ndef evil(ctx, x):\n{indent(dedent(body), "    ")}\n'


def imports(what: str, source: str, *says: str, **more: Any) -> Hostile:
    """Return a pack whose module runs ``source`` when imported."""
    messages = says if more.get("converts") else ("entry point CUSTOM.Evil = evil_pack:evil of evil-pack failed", *says)
    return Hostile(f"import {what}", source, HANDLER, messages, **more)


def lowers(what: str, body: str, *says: str, **more: Any) -> Hostile:
    messages = says if more.get("converts") else ("handler evil_pack:evil of evil-pack failed", *says)
    return Hostile(f"lowering {what}", handler(body), HANDLER, messages, **more)


def declares(name: str, text: str, *says: str) -> Hostile:
    return Hostile(f"declaring {name}={text}", handler(**{name: text}), HANDLER, says)


def fuses(what: str, *says: str, lower: str = "return ctx.ops.Abs(x)", **declared: str) -> Hostile:
    """Return a pack with a fusion, which is skipped if its declaration or lowering fails."""
    keywords = _keywords({"layout": "Transparent()", "check": "lambda match: {}", **declared})
    fusion = f'(x,) = operands("x")\n\n@fusion("EVIL", pattern=Call("CUSTOM.Evil", x), inputs=(x,), {keywords})\n'
    source = f"{handler()}\n{fusion}def fused(ctx, x):\n    {lower}\n"
    return Hostile(f"fusion {what}", source, FUSION, says, converts=True)


ARGUMENTS = {"claim": "op", "configure": "options", "after_lowering": "op, outputs", "finish": "model"}


def hooks(what: str, name: str, body: str, *says: str, **more: Any) -> Hostile:
    """Return a pack with a hook and a handler, or only with a ``claim`` hook."""
    written = f"@hookimpl\ndef {name}(self, {ARGUMENTS[name]}):\n{indent(dedent(body), '    ')}"
    messages = says if more.get("converts") else (f"hook {name} of evil-pack failed", *says)
    return hook_pack(f"{name} {what}", written, *messages, claims=name == "claim", **more)


def hook_pack(what: str, written: str, *says: str, claims: bool = False, **more: Any) -> Hostile:
    source = f"{handler()}\nclass Hooks:\n{indent(dedent(written).strip(), '    ')}\n\nhooks = Hooks()\n"
    entries = HOOKS if claims else {**HANDLER, **HOOKS}
    return Hostile(f"hook {what}", source, entries, says, **{"warns": True, **more})


def _keywords(declared: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={text}" for name, text in declared.items())
