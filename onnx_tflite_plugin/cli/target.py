"""The value of ``--target``: the name of an installed target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    _ParamType = click.ParamType[str]
else:
    _ParamType = click.ParamType  # which older versions of click do not make generic


class TargetName(_ParamType):
    """One of the names under which installed packs bring targets. Names are read from metadata; no pack is imported."""

    name = "target"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return f"[{'|'.join(_names())}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in _names():
            self.fail(f"{value!r} is not one of {', '.join(map(repr, _names()))}.", param, ctx)
        return str(value)


def _names() -> Sequence[str]:
    from onnx_tflite_plugin.installed import PROJECT, entry_points, installed

    found = (entry_points(distribution.offered, [f"{PROJECT}.targets"]) for distribution in installed())
    return sorted({entry.name for entries in found for entry in entries})
