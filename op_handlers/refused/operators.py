"""Operators not expressible in ONNX.

Other packs may convert them to a runtime's own operators.
"""

from __future__ import annotations

from onnx_tflite_plugin.api import Context, Decline, Handler, Refusal, Terminate, Value, handler

EVERY_VERSION = 2**31 - 1


def refuse(code: str, reason: str) -> Handler:
    """Return a handler that declines every instance."""

    def raise_refusal(ctx: Context, *_inputs: Value) -> Value:
        """Raise a Refusal; the operator is not expressible in ONNX."""
        raise Refusal(reason)

    declared = handler(code, max_version=EVERY_VERSION, layout=Terminate(), accepts=Decline(reason))
    return declared(raise_refusal)


concat_embeddings = refuse(
    "CONCAT_EMBEDDINGS",
    "not expressible in ONNX: the operator is a name in the schema for which LiteRT never had a kernel, so its result is undefined",
)
delegate = refuse(
    "DELEGATE",
    "not expressible in ONNX: the operator replaces operators that a LiteRT delegate ran, "
    "and the file does not record them; save the model before a delegate is applied",
)
lsh_projection = refuse(
    "LSH_PROJECTION",
    "not expressible in ONNX: the operator hashes the bytes of its input, and ONNX has no hash function",
)
posenet_decoder = refuse(
    "CUSTOM.PosenetDecoderOp",
    "not expressible in ONNX: the operator traces poses from keypoint to keypoint with a priority queue, "
    "in code of Coral's library; cut the model before the operator with --outputs",
)
skip_gram = refuse(
    "SKIP_GRAM",
    "not expressible in ONNX: the operator builds n-grams of strings, and ONNX has no operator that joins words",
)
