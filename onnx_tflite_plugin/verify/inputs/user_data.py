"""Input data of a user: arrays by name, files, folders, stacked batches, images.

Data that does not fit the model raises InvalidInputs before either model runs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any, cast

import numpy as np

from onnx_tflite_plugin.checked import did_you_mean, format_shape
from onnx_tflite_plugin.errors import InvalidInputs, MissingExtra
from onnx_tflite_plugin.graph.names import describe_key
from onnx_tflite_plugin.graph.ort_ports import Port, match_dtype, suggest_transposition, to_array
from onnx_tflite_plugin.source.authored import InterfaceMetadata, TensorMetadata
from onnx_tflite_plugin.source.model import Array, Quantization, Tensor
from onnx_tflite_plugin.verify.runtimes.packages import import_optional
from onnx_tflite_plugin.verify.runtimes.structure import Entry

InputData = Array | Mapping[str, Any] | Sequence[Mapping[str, Any]] | str | os.PathLike[str] | None
"""Inputs as the user gives them.

They are the array of the only input, arrays by name for all runs, a list of such mappings (one per run), a file, or a folder.
"""

ARRAYS = (".npz", ".npy")
IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".webp")
_UNNAMED = re.compile(r"arr_(\d+)")  # numpy's names for arrays that were saved without names


def input_runs(
    entry: Entry, inputs: InputData, metadata: InterfaceMetadata | None = None, *, nan: bool = False
) -> list[dict[str, Array]]:
    """Return input name -> array for each run, in the tensors' dtypes.

    The list is empty if ``inputs`` is None. An array that stacks several inputs along its first axis gives as many
    runs. ``metadata``: metadata of the inputs, for images. ``nan``: allow NaN, which is usually a mistake. Raises
    InvalidInputs if the arrays do not fit the model.
    """
    if inputs is None:
        return []
    mappings: list[Mapping[str, Any]]
    files: Iterable[Path | None] = repeat(None)
    if isinstance(inputs, str | os.PathLike):
        loaded = list(_load_arrays(entry, Path(inputs), metadata or {}))
        files, mappings = [file for file, _ in loaded], [arrays for _, arrays in loaded]
    else:
        mappings = _list_mappings(_name_array(entry, inputs))
    runs: list[dict[str, Array]] = []
    for mapping, file in zip(mappings, files, strict=False):
        try:
            _check_names(entry, list(mapping))
            arrays = {name: _fit_array(_tensor(entry, name), name, value, nan) for name, value in mapping.items()}
            runs += _unstack(entry, arrays)
        except InvalidInputs as error:
            if file is None:
                raise
            raise InvalidInputs(f"{file}: {error.message}") from None
    return runs


def _list_mappings(inputs: Any) -> list[Mapping[str, Any]]:
    """Return one mapping per run, from a mapping or a sequence. Raises TypeError."""
    if isinstance(inputs, Mapping):
        return [inputs]
    mappings = [*inputs] if hasattr(inputs, "__iter__") else [inputs]
    if not all(isinstance(mapping, Mapping) for mapping in mappings):
        raise TypeError(
            "inputs must be a mapping from input name to array, a sequence of such mappings, or a path, "
            f"not {type(inputs).__name__}"
        )
    return mappings


def _name_array(entry: Entry, inputs: Any) -> Any:
    """Return an array as a mapping from the only input's name; other values unchanged."""
    if not isinstance(inputs, np.ndarray):
        return inputs
    if len(entry.inputs) != 1:
        example = ", ".join(f"{name!r}: array" for name in entry.input_names)
        raise InvalidInputs(f"inputs is one array, but the model has {len(entry.inputs)} inputs; give {{{example}}}")
    return {entry.input_names[0]: inputs}


def describe_rounding(entry: Entry, inputs: InputData) -> list[str]:
    """Return a note for each input whose float64 values change in the tensor's dtype."""
    if inputs is None or (isinstance(inputs, str | os.PathLike) and Path(inputs).suffix.lower() not in ARRAYS):
        return []
    mappings: Any = (
        [arrays for _, arrays in _load_arrays(entry, Path(inputs), {})]
        if isinstance(inputs, str | os.PathLike)
        else _name_array(entry, inputs)
    )
    notes = {}
    for mapping in [mappings] if isinstance(mappings, Mapping) else mappings:
        for name, value in mapping.items():
            array, dtype = np.asarray(value), _tensor(entry, name).dtype
            if array.dtype == np.float64 and dtype in ("float16", "float32") and (array.astype(dtype) != array).any():
                notes[name] = f"input {name!r}: the given float64 values were rounded to the model's {dtype}"
    return [*notes.values()]


def describe_unknown_input(entry: Entry, name: str) -> str:
    """Return the message for a name or position that no input has."""
    known_names = ", ".join(entry.input_names) + did_you_mean(name, entry.input_names)
    return (
        f"no input has the {describe_key(name, entry.input_names, quoted=True)}; the model's inputs are {known_names}"
    )


def _tensor(entry: Entry, name: str) -> Tensor:
    return entry.inputs[entry.input_names.index(name)]


def _check_names(entry: Entry, names: Sequence[str]) -> None:
    unknown = [name for name in names if name not in entry.input_names]
    if unknown:
        known_names = ", ".join(entry.input_names)
        suggestion = did_you_mean(str(unknown[0]), entry.input_names)
        raise InvalidInputs(
            f"no input is called {', '.join(map(repr, unknown))}; the model's inputs are {known_names}{suggestion}"
        )


# --- files ------------------------------------------------------------------------------------


def _load_arrays(entry: Entry, path: Path, metadata: InterfaceMetadata) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield a file with its arrays, or each file in a folder, sorted by name."""
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix.lower() in ARRAYS + IMAGES)
        if not files:
            raise InvalidInputs(f"{path} holds no {', '.join(ARRAYS)} file and no image")
        for file in files:
            yield from _load_arrays(entry, file, metadata)
    elif path.suffix.lower() in IMAGES:
        name, tensor = _only_input(entry, path)
        tensor_metadata = metadata.get((tensor.subgraph, tensor.index), TensorMetadata())
        yield path, {name: load_image(path, name, tensor, tensor_metadata)}
    else:
        yield path, _load_file(entry, path)


def _only_input(entry: Entry, path: Path) -> tuple[str, Tensor]:
    """Return the name and tensor of the only input. Raises InvalidInputs if several."""
    if len(entry.inputs) != 1:
        names = ", ".join(entry.input_names)
        raise InvalidInputs(
            f"{path} holds one array, but the model has {len(entry.inputs)} inputs; save {names} as .npz"
        )
    return entry.input_names[0], entry.inputs[0]


def _load_file(entry: Entry, path: Path) -> dict[str, Any]:
    """Return the arrays of an .npz file by input name, or the array of an .npy file.

    Arrays of an .npz file that were saved without names are matched by position.
    """
    try:
        loaded = np.load(path)
        if isinstance(loaded, np.ndarray):
            return {_only_input(entry, path)[0]: loaded}
        with loaded:
            arrays = {name: loaded[name] for name in loaded.files}
    except (OSError, ValueError, EOFError) as error:
        reason = "it is damaged, or holds Python objects" if "pickle" in str(error) else str(error)
        if isinstance(error, EOFError):
            reason = "it is empty or incomplete"
        if path.suffix.lower() not in ARRAYS:
            reason = f"inputs are {', '.join(ARRAYS)} files or images"
        raise InvalidInputs(f"the inputs in {path} cannot be read: {reason}") from error
    positions = {name: _UNNAMED.fullmatch(name) for name in arrays}
    if all(positions.values()) and len(arrays) == len(entry.inputs):
        return {entry.input_names[int(match[1])]: arrays[name] for name, match in positions.items() if match}
    return arrays


def load_image(path: Path, name: str, tensor: Tensor, metadata: TensorMetadata) -> Array:
    """Return an image for a tensor ``[1, height, width, channels]``.

    The image is resized, and normalized according to the metadata. Without normalization in the metadata, integers are
    the pixels (int8: minus 128), and floats are between 0 and 1.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtra("pillow", "images") from error
    if tensor.rank != 4 or tensor.shape[3] not in (1, 3):
        raise InvalidInputs(f"{path}: input {name!r} is {tensor.dtype} {list(tensor.shape)}, which is not an image")
    height, width, channels = tensor.shape[1:]
    try:
        with Image.open(path) as file:
            image = file.convert("L" if channels == 1 else "RGB")
            if None not in tensor.dims[1:3]:
                image = image.resize((width, height), Image.Resampling.BILINEAR)
            pixels = np.asarray(image, np.float32)
    except OSError as error:
        raise InvalidInputs(f"{path} cannot be read as an image: {error}") from error
    return _normalize_image(pixels.reshape(1, *pixels.shape[:2], channels), tensor, metadata)


def _normalize_image(pixels: Array, tensor: Tensor, metadata: TensorMetadata) -> Array:
    quantization = tensor.quantization if isinstance(tensor.quantization, Quantization) else None
    is_integer = tensor.dtype in ("int8", "uint8", "int16")
    if metadata.mean and metadata.std:
        values: Array = (pixels - np.asarray(metadata.mean, np.float32)) / np.asarray(metadata.std, np.float32)
    elif is_integer:
        return (pixels - (128 if tensor.dtype == "int8" else 0)).astype(tensor.dtype)
    else:
        values = pixels / np.float32(255)
    if is_integer and quantization is not None:
        limits = np.iinfo(tensor.dtype)
        quantized = np.rint(values / quantization.scale[0]) + quantization.zero_point[0]
        return np.asarray(np.clip(quantized, limits.min, limits.max).astype(tensor.dtype))
    return np.asarray(values, dtype_of(tensor.dtype))


# --- checks -----------------------------------------------------------------------------------


def _fit_array(tensor: Tensor, name: str, value: Any, nan: bool) -> Array:
    """Return a user's array in the tensor's dtype, by the rules of ``Session.run``.

    Floats may also have another width; ``describe_rounding`` reports changed values. Raises InvalidInputs for another
    dtype, or if the array neither has the tensor's shape nor is a stack of such arrays.
    """
    try:
        array = to_array(value, f"input {name!r}")
        if array.dtype.kind != "O":
            _check_shape(tensor, name, array)
        if not nan and array.dtype.kind == "f" and np.isnan(array).any():
            raise InvalidInputs(
                f"input {name!r}: {int(np.isnan(array).sum())} of {array.size} elements are NaN; replace them with numbers"
            )
        port = _port(tensor, name)
        if array.dtype.kind == "f" and "float" in port.dtype.name:
            with np.errstate(over="ignore"):
                return array.astype(port.dtype)
        converted = match_dtype(array, port, f"input {name!r} is {port}", is_array=hasattr(value, "dtype"))
    except ValueError as error:
        raise InvalidInputs(str(error)) from None
    _check_shape(tensor, name, converted)
    return converted


def _port(tensor: Tensor, name: str) -> Port:
    """Return an input of the TFLite model as an input of a session."""
    quantization = tensor.quantization
    if not isinstance(quantization, Quantization) or quantization.per_axis:
        return Port(name, tensor.dtype, tensor.dims)
    return Port(name, tensor.dtype, tensor.dims, (float(quantization.scale[0]),), (int(quantization.zero_point[0]),))


def _check_shape(tensor: Tensor, name: str, array: Array) -> None:
    if tensor.rank and not _fits(tensor, array.shape) and _count_stacked(tensor, array.shape) is None:
        raise InvalidInputs(
            f"input {name!r} is {tensor.dtype} {format_shape(tensor.dims)}, but the given array has shape "
            f"{list(array.shape)}{suggest_transposition(array.shape, tensor.dims)}"
        )


def _fits(tensor: Tensor, shape: tuple[int, ...]) -> bool:
    """True if a shape has each static size of the file.

    LiteRT accepts other shapes too, but they are usually a mistake.
    """
    return len(shape) == tensor.rank and all(
        size is None or size == actual for size, actual in zip(tensor.dims, shape, strict=True)
    )


def _count_stacked(tensor: Tensor, shape: tuple[int, ...]) -> tuple[int, bool] | None:
    """Return the number of stacked inputs, and True if the first axis counts them.

    That axis then has size 1 in the model. Otherwise the inputs are stacked along an additional axis. Return None if
    the shape is not a stack.
    """
    if _fits(tensor, shape[1:]):
        return shape[0], False
    if len(shape) == tensor.rank and tensor.rank and _fits(tensor, (1, *shape[1:])):
        return shape[0], True
    return None


def _unstack(entry: Entry, arrays: dict[str, Array]) -> list[dict[str, Array]]:
    """Return one mapping per run. Raises InvalidInputs if stacks differ in length."""
    stacks = {}
    for name, array in arrays.items():
        tensor = _tensor(entry, name)
        stack = None if not tensor.rank or _fits(tensor, array.shape) else _count_stacked(tensor, array.shape)
        if stack is not None:
            stacks[name] = stack
    if not stacks:
        return [arrays]
    counts = {name: count for name, (count, _) in stacks.items()}
    if len(set(counts.values())) > 1:
        sizes = ", ".join(f"{count} of {name!r}" for name, count in counts.items())
        raise InvalidInputs(f"the stacked inputs have different numbers of arrays: {sizes}")
    run_count = next(iter(counts.values()))
    if not run_count:
        raise InvalidInputs(f"input {next(iter(counts))!r}: the given array is empty")
    return [
        {name: _take_element(array, k, stacks.get(name)) for name, array in arrays.items()} for k in range(run_count)
    ]


def _take_element(array: Array, k: int, stack: tuple[int, bool] | None) -> Array:
    """Return element ``k`` of a stack; the whole array if it is not a stack."""
    if stack is None:
        return array
    _, is_first_axis = stack
    return array[k : k + 1] if is_first_axis else array[k]


def dtype_of(name: str) -> np.dtype[Any]:
    """Return the NumPy dtype of a TFLite dtype, from ml_dtypes if NumPy lacks it."""
    try:
        return np.dtype(name)
    except TypeError:
        return cast("np.dtype[Any]", np.dtype(getattr(import_optional("ml_dtypes"), name)))
