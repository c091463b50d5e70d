"""Operators that a compiler for one processor writes instead of the original ones."""

from __future__ import annotations

from typing import NamedTuple

from onnx_tflite_plugin.api import Decline, Operator, hookimpl


class Compiler(NamedTuple):
    """Compiler, by the names of its custom operators: one name, or with ``prefix`` all that begin with it."""

    code: str
    compiler: str
    processor: str
    prefix: bool = False

    def emits_operator(self, name: str) -> bool:
        return name.startswith(self.code) if self.prefix else name == self.code


COMPILERS = (
    # tensorflow/tflite-micro: tensorflow/lite/micro/kernels/ethos_u/ethosu.cc
    Compiler("ethos-u", "Vela", "Arm Ethos-U"),
    # google-coral/coralmicro: libs/tpu/edgetpu_op.h
    Compiler("edgetpu-custom-op", "the Edge TPU compiler", "the Edge TPU"),
    # xmos/lib_tflite_micro: lib_tflite_micro/src/tflite-xcore-kernels/xcore_ops.h
    Compiler("XC_", "xformer of XMOS's AI tools", "XMOS xcore", prefix=True),
    # nxp-imx/tflite-neutron-delegate: neutron_delegate.h; pytorch/executorch: backends/nxp/neutron_node_extraction.py
    Compiler("NeutronGraph", "NXP's Neutron converter", "NXP eIQ Neutron"),
    # google-ai-edge/LiteRT: litert/core/build_stamp.h; parts are numbered, litert/core/model/model_buffer_test.cc
    Compiler("DISPATCH_OP", "a compiler plugin of LiteRT", "one NPU", prefix=True),
)
"""Each with a public file that has the operator's name."""

_CUSTOM = "CUSTOM."


@hookimpl
def claim(op: Operator) -> Decline | None:
    if not op.code.startswith(_CUSTOM):
        return None
    name = op.code.removeprefix(_CUSTOM)
    found = next((each for each in COMPILERS if each.emits_operator(name)), None)
    if found is None:
        return None
    return Decline(
        f"{found.compiler} compiled this file for {found.processor}: the operator holds a program that no other processor "
        "runs, and ONNX cannot express it",
        f"convert the original .tflite file, the one that {found.compiler} was given",
    )
