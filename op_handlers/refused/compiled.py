"""Custom operators that contain parts of a model, compiled for one processor."""

from __future__ import annotations

from typing import NamedTuple

from onnx_tflite_plugin.api import Decline, Operator, hookimpl


class Compiler(NamedTuple):
    """A compiler and its custom operators.

    ``code``: name of the operator, or with ``is_prefix`` the beginning of the names of several operators.
    """

    code: str
    name: str
    processor: str
    is_prefix: bool = False

    def emits_operator(self, name: str) -> bool:
        return name.startswith(self.code) if self.is_prefix else name == self.code


COMPILERS = (
    # tensorflow/tflite-micro: tensorflow/lite/micro/kernels/ethos_u/ethosu.cc
    Compiler("ethos-u", "Vela", "Arm Ethos-U"),
    # google-coral/coralmicro: libs/tpu/edgetpu_op.h
    Compiler("edgetpu-custom-op", "the Edge TPU compiler", "the Edge TPU"),
    # xmos/lib_tflite_micro: lib_tflite_micro/src/tflite-xcore-kernels/xcore_ops.h
    Compiler("XC_", "xformer of XMOS's AI tools", "XMOS xcore", is_prefix=True),
    # nxp-imx/tflite-neutron-delegate: neutron_delegate.h; pytorch/executorch: backends/nxp/neutron_node_extraction.py
    Compiler("NeutronGraph", "NXP's Neutron converter", "NXP eIQ Neutron"),
    # google-ai-edge/LiteRT: litert/core/build_stamp.h; parts are numbered, litert/core/model/model_buffer_test.cc
    Compiler("DISPATCH_OP", "a compiler plugin of LiteRT", "one NPU", is_prefix=True),
)
"""The comment above each entry names a public file that contains the name of the operator."""

_CUSTOM = "CUSTOM."


@hookimpl
def claim(op: Operator) -> Decline | None:
    if not op.code.startswith(_CUSTOM):
        return None
    name = op.code.removeprefix(_CUSTOM)
    compiler = next((compiler for compiler in COMPILERS if compiler.emits_operator(name)), None)
    if compiler is None:
        return None
    return Decline(
        f"{compiler.name} compiled this file for {compiler.processor}: the operator holds a program that no other processor "
        "runs, and ONNX cannot express it",
        f"convert the original .tflite file, the one that {compiler.name} was given",
    )
