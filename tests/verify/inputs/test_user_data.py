"""Test user data as arrays, files, folders and images, and its errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder, quant
from onnx_tflite_plugin.errors import InvalidInputs
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import LiteRT, generate_inputs, verify
from onnx_tflite_plugin.verify.inputs.user_data import input_runs
from onnx_tflite_plugin.verify.runtimes import structure
from tests.helpers.metadata_files import serialize
from tests.helpers.verify_graphs import entry_of, slot, subgraph
from tests.helpers.wrong_models import without_digest

SHAPE = (1, 2, 3, 5)


def build_model(
    dtype: str = "float32", shape: tuple[int | None, ...] = SHAPE, *, metadata: bytes | None = None
) -> bytes:
    model = ModelBuilder()
    g = model.main
    quantization_fields: dict[str, Any] = {"quantization": quant(0.25, 3)} if dtype in ("int8", "uint8") else {}
    x, y = g.input("x", shape, dtype, **quantization_fields), g.tensor("y", shape, dtype, **quantization_fields)
    g.operator("ADD", [x, x], [y])
    g.output(y)
    if metadata is not None:
        model.metadata("TFLITE_METADATA", metadata)
    return model.build()


def runs(arrays: Any, data: bytes | None = None) -> list[dict[str, Array]]:
    return input_runs(structure.entry(structure.read(data or build_model())), arrays)


def random_floats(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


# --- accepted data ----------------------------------------------------------------------------


def test_accepts_an_array_a_stack_or_a_list_of_mappings() -> None:
    single_array, stack = random_floats(*SHAPE), random_floats(7, 2, 3, 5)
    (run,) = runs({"x": single_array})
    np.testing.assert_array_equal(run["x"], single_array)
    stacked = runs({"x": stack})
    assert len(stacked) == 7
    np.testing.assert_array_equal(stacked[4]["x"], stack[4:5])
    np.testing.assert_array_equal(runs({"x": stack[:, None]})[4]["x"], stack[4:5])
    assert len(runs([{"x": single_array}, {"x": 2 * single_array}])) == 2


def test_files_of_a_folder_are_read_in_name_order(tmp_path: Path) -> None:
    np.save(tmp_path / "b.npy", random_floats(*SHAPE))
    np.savez(tmp_path / "a.npz", x=2 * random_floats(*SHAPE))
    np.savez(tmp_path / "c.npz", 3 * random_floats(*SHAPE))  # numpy calls it arr_0
    (tmp_path / "notes.txt").write_text("not data")
    assert [float(run["x"].ravel()[0] / random_floats(*SHAPE).ravel()[0]) for run in runs(tmp_path)] == [2, 1, 3]
    for name in ("a.npz", "b.npy", "c.npz"):
        assert len(runs(str(tmp_path / name))) == 1


def test_both_runtimes_receive_the_given_arrays() -> None:
    data, array = build_model(), random_floats(3, 2, 3, 5)
    verification = verify(data, otp.convert(data), inputs={"x": array})
    assert verification.ok
    assert verification.runs == 3


def test_dynamic_dimension_accepts_any_size() -> None:
    data = build_model(shape=(None, 3))
    assert verify(data, otp.convert(data), inputs={"x": random_floats(11, 3)}).runs == 1


def test_given_arrays_must_match_a_fixed_batch() -> None:
    data = build_model()
    fixed_batch = otp.convert(data, input_shape={"x": (4, 2, 3, 5)})
    assert verify(data, fixed_batch, inputs={"x": random_floats(4, 2, 3, 5)}).runs == 1
    with pytest.raises(InvalidInputs, match=r"is float32 \[4, 2, 3, 5\], but the given array has shape \[3, 2, 3, 5\]"):
        verify(data, fixed_batch, inputs={"x": random_floats(3, 2, 3, 5)})


# --- images -----------------------------------------------------------------------------------

NORMALIZED = serialize({3: [{2: [{4: [{0: ("Uint8", 1), 1: {0: [127.5], 1: [2.0]}}]}]}]})


def save_image(path: Path, channels: int = 3) -> Array:
    pixels = np.random.default_rng(1).integers(0, 256, (4, 6, channels)).astype(np.uint8)
    Image.fromarray(pixels if channels == 3 else pixels[..., 0]).save(path)
    return pixels


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    ("dtype", "metadata", "expected"),
    [
        ("float32", None, lambda p: p / 255),
        ("uint8", None, lambda p: p),
        ("int8", None, lambda p: p.astype(int) - 128),
        ("float32", NORMALIZED, lambda p: (p - 127.5) / 2),
        ("int8", NORMALIZED, lambda p: np.clip(np.rint((p - 127.5) / 2 / 0.25) + 3, -128, 127)),
    ],
)
def test_image_is_normalized_by_metadata(
    tmp_path: Path, dtype: str, metadata: bytes | None, expected: Any, channels: int
) -> None:
    pixels = save_image(tmp_path / "p.png", channels)
    data = build_model(dtype, (1, 4, 6, channels), metadata=metadata)
    fed_arrays: list[Array] = []
    original = LiteRT.run

    def watch_calls(self: LiteRT, inputs: Any) -> list[Array]:
        fed_arrays.append(inputs[0])
        return original(self, inputs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LiteRT, "run", watch_calls)
        assert verify(data, otp.convert(data), inputs=tmp_path / "p.png").ok
    np.testing.assert_allclose(fed_arrays[0][0].astype(np.float64), expected(pixels.astype(np.float64)), rtol=1e-6)


def test_resizes_images(tmp_path: Path) -> None:
    save_image(tmp_path / "p.png")
    data = build_model(shape=(1, 8, 9, 3))
    assert verify(data, otp.convert(data), inputs=tmp_path).ok


# --- invalid data -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        ({"z": random_floats(*SHAPE)}, "no input is called 'z'; the model's inputs are x"),
        ({"x": random_floats(1, 5, 2, 3)}, r"move its channels to the end: array.transpose\(0, 2, 3, 1\)"),
        ({"x": random_floats(1, 2, 3, 7)}, r"is float32 \[1, 2, 3, 5\], but the given array has shape \[1, 2, 3, 7\]"),
        ({"x": np.full(SHAPE, np.nan)}, "30 of 30 elements are NaN"),
        ({"x": np.full(SHAPE, "a")}, "is float32 .*, not text"),
        ({"x": np.zeros((0, 2, 3, 5), np.float32)}, "the given array is empty"),
    ],
)
def test_reports_data_that_does_not_fit(arrays: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidInputs, match=text):
        runs(arrays)


def test_errors_in_data_name_the_file(tmp_path: Path) -> None:
    for name, array in (("b", random_floats(*SHAPE)), ("c", np.full(SHAPE, np.nan, np.float32))):
        np.save(tmp_path / f"{name}.npy", array)
    with pytest.raises(InvalidInputs, match=r"c\.npy: input 'x': 30 of 30 elements are NaN; replace them with numbers"):
        runs(tmp_path)
    (tmp_path / "a.npy").touch()
    with pytest.raises(InvalidInputs, match=r"a\.npy cannot be read: it is empty or incomplete"):
        runs(tmp_path / "a.npy")


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ((1, 2), r"shapes\['x'\] is \(1, 2\): 2 sizes, but the input has 4 axes, \[\?, 2, 3, 5\]"),
        (
            (4, 2, 3, 7),
            r"\(4, 2, 3, 7\), but the input is \[\?, 2, 3, 5\] in the ONNX model; only sizes shown as \? may differ",
        ),
    ],
)
def test_requested_shape_must_fit_the_onnx_model(shape: tuple[int, ...], text: str) -> None:
    data = build_model()
    conversion = otp.convert(data, input_shape={"x": ("N", 2, 3, 5)})
    with pytest.raises(InvalidInputs, match=text):
        verify(data, conversion, shapes={"x": shape})
    assert verify(data, conversion, shapes={"x": (4, 2, 3, 5)}).ok


def test_rejects_floats_for_an_int8_input() -> None:
    with pytest.raises(
        InvalidInputs, match=r"quantize it: np.clip\(np.round\(array / 0.25\) \+ 3, -128, 127\).astype\('int8'\)"
    ):
        runs({"x": random_floats(*SHAPE)}, build_model("int8"))


def test_npz_names_are_not_matched_by_position(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", image=random_floats(*SHAPE))
    with pytest.raises(InvalidInputs, match="no input is called 'image'"):
        runs(tmp_path / "a.npz")


def test_rejects_an_empty_folder_and_an_image_for_a_vector(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputs, match="holds no "):
        runs(tmp_path)
    save_image(tmp_path / "p.png")
    with pytest.raises(InvalidInputs, match="which is not an image"):
        runs(tmp_path)


# --- ranges -----------------------------------------------------------------------------------


def test_random_values_stay_within_the_requested_range() -> None:
    entry = structure.entry(structure.read(build_model(shape=(500,))))
    (values,) = generate_inputs(entry, ranges={"x": (3.0, 3.5)})[0]
    assert 3.0 <= values.min() < 3.01
    assert 3.49 < values.max() <= 3.5
    (integers,) = generate_inputs(structure.entry(structure.read(build_model("int8", (500,)))), ranges={"x": (-5, 2)})[
        0
    ]
    assert (integers.dtype, integers.min(), integers.max()) == (np.int8, -5, 2)


@pytest.mark.parametrize(
    ("ranges", "text"), [({"z": (0, 1)}, "no input has the name 'z'"), ({"x": (2, 1)}, "is empty")]
)
def test_rejects_ranges_that_match_no_input(ranges: dict[str, tuple[float, float]], text: str) -> None:
    data = build_model()
    with pytest.raises(InvalidInputs, match=text):
        verify(data, otp.convert(data), ranges=ranges)


# --- attribution of failures ------------------------------------------------------------------


def test_mismatched_model_is_not_attributed_to_a_fusion() -> None:
    model = ModelBuilder()
    g = model.main
    x, y = g.input("x", SHAPE), g.tensor("y", SHAPE)
    g.operator("NEG", [x], [y])
    g.output(y)
    verification = verify(build_model(), without_digest(otp.convert(model.build()).proto))
    assert not verification.ok
    assert "fusion" not in verification.text


def test_reports_results_that_are_all_nan() -> None:
    model = ModelBuilder()
    g = model.main
    x, y = g.input("x", SHAPE), g.tensor("y", SHAPE)
    g.operator("SQRT", [x], [y])
    g.output(y)
    verification = verify(model.build(), otp.convert(model.build()), ranges={"x": (-2, -1)})
    assert (verification.verdict, verification.ok) == ("inconclusive", False)
    assert "every output is NaN in both runtimes" in verification.text


@pytest.mark.filterwarnings("error")
def test_rejects_infinity_for_an_integer_input_without_a_warning() -> None:
    entry = entry_of(subgraph(inputs=[slot(0, "int32")]))
    with pytest.raises(InvalidInputs, match=r"is int32 .*, not float32"):
        input_runs(entry, {"t0": np.full((2, 3), np.inf, np.float32)})


def test_an_array_is_the_only_input() -> None:
    array = random_floats(*SHAPE)
    (run,) = runs(array)
    np.testing.assert_array_equal(run["x"], array)
    entry = entry_of(subgraph(inputs=[slot(0, "int32"), slot(1, "int32")]))
    with pytest.raises(InvalidInputs, match=r"the model has 2 inputs; give \{'t0': array, 't1': array\}"):
        input_runs(entry, array)
