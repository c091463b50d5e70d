"""Metadata of a value: the TFLite tensor that it holds.

:mod:`onnx_tflite_plugin.graph.metadata` lists the keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence

from onnx_tflite_plugin.graph.metadata import PREFIX, converter_entries
from onnx_tflite_plugin.graph.tensor_value import TensorValue

_CHANNELS = PREFIX + "channels"


def write_tensor(
    metadata: MutableMapping[str, str],
    subgraph: int,
    tensor: int,
    *,
    encoding: str = "stored",
    order: str = "",
    shift: int = 0,
) -> None:
    """Write which tensor a value holds, and remove earlier entries.

    ``order``: as written by ``layout.tensor_layout.format_layout``.
    """
    for key in ("tensor", "form", "order", "shift", "channels"):
        metadata.pop(PREFIX + key, None)
    texts = {"tensor": f"{subgraph}:{tensor}", "form": encoding, "order": order, "shift": str(shift) if shift else ""}
    metadata.update({PREFIX + key: text for key, text in texts.items() if text})


def write_channels(metadata: MutableMapping[str, str], channels: Sequence[int]) -> None:
    """Write the former channel of each channel of a value; -1 for an added channel."""
    value = read_tensor("", metadata)
    if value is None:
        return
    previous = value.channels or range(max(channels) + 1)
    metadata[_CHANNELS] = ",".join(_ranges([previous[k] if k >= 0 else -1 for k in channels]))


def _ranges(channels: Sequence[int]) -> Iterator[str]:
    """Yield ascending channels as ``first:count``, and added channels as ``:count``."""
    start = 0
    for k in range(1, len(channels) + 1):
        step = 1 if channels[start] >= 0 else 0
        if k == len(channels) or channels[k] != channels[start] + step * (k - start):
            yield f"{channels[start] if step else ''}:{k - start}"
            start = k


def _read_channels(text: str) -> Iterator[int]:
    for text_range in text.split(","):
        first, _, count = text_range.partition(":")
        yield from range(int(first), int(first) + int(count)) if first else [-1] * int(count)


def holds_tensor(metadata: Mapping[str, str]) -> bool:
    return PREFIX + "tensor" in metadata


def read_tensor(name: str, metadata: Mapping[str, str]) -> TensorValue | None:
    """Return the tensor that a value holds, from the value's metadata.

    Return None if it holds none, or splits axes.
    """
    texts = {key.removeprefix(PREFIX): text for key, text in converter_entries(metadata).items()}
    try:
        subgraph, tensor = (int(number) for number in texts["tensor"].split(":"))
        order = tuple(int(axis) for axis in texts["order"].split(",")) if texts.get("order") else None
        shift = int(texts.get("shift") or 0)
        channels = tuple(_read_channels(texts["channels"])) if texts.get("channels") else ()
    except (KeyError, ValueError):
        return None
    return TensorValue(name, subgraph, tensor, order, shift, texts.get("form", "stored"), channels)
