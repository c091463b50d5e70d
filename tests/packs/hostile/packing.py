"""Sources of op packs with deliberate faults."""

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
    """The distribution ``evil-pack``, usually with a handler of ``CUSTOM.Evil``.

    ``messages``: texts that the message or the warning must contain besides the pack's name. ``converts``: a model that uses
    the pack converts anyway. ``warns_always``: conversions of unrelated models warn too. ``has_location``: the message names
    file and line in the pack.
    """

    fault: str
    source: str
    entries: Mapping[str, str]
    messages: tuple[str, ...]
    converts: bool = False
    warns_always: bool = False
    has_location: bool = True
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


def import_fault(fault: str, source: str, *texts: str, **fields: Any) -> Hostile:
    """Return a pack whose module runs ``source`` when imported."""
    messages = (
        texts if fields.get("converts") else ("entry point CUSTOM.Evil = evil_pack:evil of evil-pack failed", *texts)
    )
    return Hostile(f"import {fault}", source, HANDLER, messages, **fields)


def lowering_fault(fault: str, body: str, *texts: str, **fields: Any) -> Hostile:
    """Return a pack with this lowering."""
    messages = texts if fields.get("converts") else ("handler evil_pack:evil of evil-pack failed", *texts)
    return Hostile(f"lowering {fault}", handler(body), HANDLER, messages, **fields)


def declaration_fault(name: str, text: str, *texts: str) -> Hostile:
    """Return a pack whose handler has this declaration."""
    return Hostile(f"declaring {name}={text}", handler(**{name: text}), HANDLER, texts)


def fusion_fault(fault: str, *texts: str, lower: str = "return ctx.ops.Abs(x)", **declared: str) -> Hostile:
    """Return a pack with a fusion, which is skipped if it fails."""
    keywords = _keywords({"layout": "Transparent()", "check": "lambda match: {}", **declared})
    fusion = f'(x,) = operands("x")\n\n@fusion("EVIL", pattern=Call("CUSTOM.Evil", x), inputs=(x,), {keywords})\n'
    source = f"{handler()}\n{fusion}def fused(ctx, x):\n    {lower}\n"
    return Hostile(f"fusion {fault}", source, FUSION, texts, converts=True)


ARGUMENTS = {"claim": "op", "configure": "options", "after_lowering": "op, outputs", "finish": "model"}


def hook_fault(fault: str, name: str, body: str, *texts: str, **fields: Any) -> Hostile:
    """Return a pack with a hook and a handler, or only with a ``claim`` hook."""
    hook = f"@hookimpl\ndef {name}(self, {ARGUMENTS[name]}):\n{indent(dedent(body), '    ')}"
    messages = texts if fields.get("converts") else (f"hook {name} of evil-pack failed", *texts)
    return hook_pack(f"{name} {fault}", hook, *messages, claims=name == "claim", **fields)


def hook_pack(fault: str, methods: str, *texts: str, claims: bool = False, **fields: Any) -> Hostile:
    """Return a pack with these hooks; ``claims``: the hook ``claim`` replaces the handler."""
    source = f"{handler()}\nclass Hooks:\n{indent(dedent(methods).strip(), '    ')}\n\nhooks = Hooks()\n"
    entries = HOOKS if claims else {**HANDLER, **HOOKS}
    return Hostile(f"hook {fault}", source, entries, texts, **{"warns_always": True, **fields})


def _keywords(declared: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={text}" for name, text in declared.items())
