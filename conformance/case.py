"""A case: one small model, and the requirements on its conversion."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from onnx_tflite_plugin.api import Kernel
from onnx_tflite_plugin.checked import check_keywords
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import Tolerance as Tolerance  # packs take it from here

Given = Mapping[str, Array] | Sequence[Mapping[str, Array]]
Reference = Callable[[Sequence[Array]], Sequence[Array]]

EVERY_OPSET = (None, 13, 17, 21, 26)


@dataclass(frozen=True, eq=False)
class Case:
    """``build`` returns the bytes of a .tflite file; its conversion is compared with LiteRT. Everything else has a default.

    ``op``: name of the entry point of the handler under test. ``dtype``: the column of the support table that counts the case.
    ``given``: arrays by input name for every run, or one mapping per run; missing inputs are random, with floats
    from ``span`` if given. ``runs``: invocations of one session, which carries the states.
    ``sizes``: further sizes of dynamic dimensions, one run each. A number is the size of axis 0; each later axis is larger
    by one. Empty if LiteRT accepts no other sizes.
    ``opsets``: ``None`` is the target's default. ``options``: further options of ``convert``.

    ``kernel``: a NumPy kernel of the operator if LiteRT has none; by default the kernel that the handler declares. LiteRT
    runs the rest of the model. ``reference`` computes the outputs of the whole model instead, from all its inputs.
    ``nodes``: ONNX operators that the model of the least-cost plan must have, such as ``Conv`` or ``com.microsoft.Gelu``,
    optionally with their number. ``fuses``: fusions that must apply. ``refused``: the conversion must fail with this text.
    ``kernel_refuses``: LiteRT must fail with this text, so nothing is converted; together with ``refused``, both
    must fail. ``known``: the reason for a known failure; the case must fail.

    ``transposes``: the maximum number of Transpose nodes of the least-cost plan, unless some are chosen for speed.
    ``tolerance`` replaces the default and needs ``why``, its reason in the kernel. Built-in handlers list exact operators in
    ``conformance.bounds`` instead.
    """

    op: str
    name: str
    build: Callable[[], bytes]
    dtype: str = "float32"
    given: Given | None = None
    span: tuple[float, float] | None = None
    runs: int = 3
    sizes: Sequence[int] = (2, 7)
    opsets: Sequence[int | None] = (None,)
    targets: Sequence[str] = ("onnxruntime", "generic")
    options: Mapping[str, Any] = field(default_factory=dict)
    kernel: Kernel | None = None
    reference: Reference | None = None
    nodes: Collection[str] | Mapping[str, int] = ()
    fuses: Collection[str] = ()
    refused: str = ""
    kernel_refuses: str = ""
    known: str = ""
    transposes: int | None = None
    tolerance: Tolerance | None = None
    why: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.nodes, str) or isinstance(self.fuses, str):
            raise TypeError(
                f"{self.id}: nodes and fuses are collections of names; write ({self.nodes or self.fuses!r},) for one name"
            )
        if self.tolerance is not None and not self.why:
            raise ValueError(f"{self.id}: tolerance= needs why=, the reason in the kernel")

    @property
    def id(self) -> str:
        return f"{self.op}-{self.name}".replace(" ", "_")

    @property
    def counts(self) -> bool:
        """True if a pass of this case shows that the operator converts."""
        return not (self.refused or self.kernel_refuses or self.known)


OPERATOR_KEYWORDS = ("options", "custom_options", "version")
"""Keywords of the helpers for one operator, besides the fields of a case."""


def check_case_keywords(name: str, keywords: Collection[str], more: Collection[str] = ()) -> None:
    """Raise TypeError for a keyword that a case does not take. ``more``: keywords besides those of a case."""
    for keyword in keywords:
        if get_close_matches(keyword, ["quantization", "quantized", "scale", "zero_point"], 1, 0.8):
            raise TypeError(
                f"the case {name!r} takes no keyword {keyword!r}; a tensor has scale and zero point, as in "
                "tensor(2, 3, dtype='int8', scale=0.1, zero_point=5), and options={'quantization': 'float'} is an option of convert"
            )
    check_keywords(f"the case {name!r}", keywords, [*Case.__dataclass_fields__, *more])
