"""Operators not expressible in ONNX. Other packs may convert them to a runtime's own operators."""

from __future__ import annotations

from onnx_tflite_plugin.api import Context, Decline, Handler, Refusal, Terminate, Value, handler

EVERY_VERSION = 2**31 - 1


def refuse(code: str, reason: str) -> Handler:
    """Return a handler that declines every instance."""

    def refused(ctx: Context, *_inputs: Value) -> Value:
        """None."""
        raise Refusal(reason)

    declared = handler(code, max_version=EVERY_VERSION, layout=Terminate(), accepts=Decline(reason))
    return declared(refused)


concat_embeddings = refuse(
    "CONCAT_EMBEDDINGS",
    "it has no form in ONNX: it is a name in the schema that LiteRT never gave a kernel, so what it computes is not defined",
)
delegate = refuse(
    "DELEGATE",
    "it has no form in ONNX: it stands for operators that a LiteRT delegate took over as a program ran, and a file does "
    "not say which; save the model before a delegate is applied",
)
lsh_projection = refuse(
    "LSH_PROJECTION",
    "it has no form in ONNX: it hashes the bytes of its input with a function that ONNX has no operators for",
)
posenet_decoder = refuse(
    "CUSTOM.PosenetDecoderOp",
    "it has no form in ONNX: it follows poses from part to part by a queue of candidates, code of Coral's library that "
    "LiteRT does not have; convert the network in front of it, whose outputs are heatmaps and offsets",
)
skip_gram = refuse(
    "SKIP_GRAM",
    "it has no form in ONNX: it makes strings of strings, and ONNX has no operator that takes a string apart by words "
    "and joins them with some left out",
)
