"""Checks of user inputs and ranges: shapes, dtypes, stacks, images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from onnx_tflite_plugin.errors import InvalidInputs
from onnx_tflite_plugin.source.authored import TensorMetadata
from onnx_tflite_plugin.source.model import Array, Tensor
from onnx_tflite_plugin.verify.inputs.user_data import input_runs, load_image
from tests.helpers.verify_graphs import entry_of, slot, subgraph

PAIR = slot(0, shape=(1, 3)), slot(1, shape=(1, 5))


def runs(arrays: Any, *tensors: Tensor, nan: bool = False) -> list[dict[str, Array]]:
    return input_runs(entry_of(subgraph(inputs=tensors or PAIR)), arrays, nan=nan)


class TestRuns:
    def test_unstacked_input_is_reused_in_every_run(self) -> None:
        stacked, single_array = np.arange(21.0).reshape(7, 3), np.arange(5.0).reshape(1, 5)
        input_runs = runs({"t0": stacked, "t1": single_array})
        assert len(input_runs) == 7
        assert all(
            (run["t0"] == stacked[k : k + 1]).all() and (run["t1"] == single_array).all()
            for k, run in enumerate(input_runs)
        )

    def test_rejects_stacks_of_different_lengths(self) -> None:
        with pytest.raises(InvalidInputs, match="have different numbers of arrays: 7 of 't0', 2 of 't1'"):
            runs({"t0": np.zeros((7, 3)), "t1": np.zeros((2, 5))})

    def test_only_a_leading_axis_of_1_may_be_stacked(self) -> None:
        with pytest.raises(InvalidInputs, match=r"\[2, 3\], but the given array has shape \[4, 3\]"):
            runs({"t0": np.zeros((4, 3))}, slot(0, shape=(2, 3)))
        with pytest.raises(InvalidInputs, match=r"\[1, 3\], but the given array has shape \[1, 1, 1, 3\]"):
            runs({"t0": np.zeros((1, 1, 1, 3))})

    def test_array_for_an_input_of_unknown_rank_is_one_run(self) -> None:
        unranked_input = replace(slot(0, shape=()), has_rank=False)
        assert [run["t0"].shape for run in runs({"t0": np.zeros((4, 2, 3))}, unranked_input)] == [(4, 2, 3)]

    def test_image_suffixes_ignore_case(self, tmp_path: Path) -> None:
        Image.fromarray(np.zeros((4, 6, 3), np.uint8)).save(tmp_path / "p.PNG")
        x = slot(0, shape=(1, 4, 6, 3))
        assert len(runs(tmp_path, x)) == len(runs(tmp_path / "p.PNG", x)) == 1

    def test_single_array_needs_a_model_with_one_input(self, tmp_path: Path) -> None:
        np.save(tmp_path / "a.npy", np.zeros((1, 3)))
        with pytest.raises(InvalidInputs, match=r"the model has 2 inputs; save t0, t1 as .npz"):
            runs(tmp_path / "a.npy")

    def test_unnamed_arrays_match_inputs_by_position(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "a.npz", np.zeros((1, 3)), np.ones((1, 5)))
        (run,) = runs(tmp_path / "a.npz")
        assert (run["t0"].shape, run["t1"].shape) == ((1, 3), (1, 5))
        np.savez(tmp_path / "b.npz", np.zeros((1, 3)))
        with pytest.raises(InvalidInputs, match="no input is called 'arr_0'"):
            runs(tmp_path / "b.npz")

    @pytest.mark.parametrize("arrays", [3, [{"t0": np.zeros((1, 3))}, 3], [[1.0]]])
    def test_rejects_runs_that_are_not_mappings(self, arrays: Any) -> None:
        with pytest.raises(TypeError):
            runs(arrays)

    def test_partly_named_arrays_match_by_name(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "a.npz", np.zeros((1, 3)), t1=np.ones((1, 5)))
        with pytest.raises(InvalidInputs, match="no input is called 'arr_0'"):
            runs(tmp_path / "a.npz")

    @pytest.mark.parametrize(
        ("name", "reason"),
        [("a.npy", "it is damaged, or holds Python objects$"), ("a.bin", r"inputs are \.npz, \.npy files or images$")],
    )
    def test_unreadable_array_file_is_reported_with_the_reason(self, tmp_path: Path, name: str, reason: str) -> None:
        (tmp_path / name).write_bytes(b"something else")
        with pytest.raises(InvalidInputs, match=rf"the inputs in .*{name} cannot be read: {reason}"):
            runs(tmp_path / name)


class TestArrayChecks:
    @pytest.mark.parametrize(
        ("dtype", "array", "message"),
        [
            ("float32", np.zeros((2, 3), np.complex64), r"is float32 \[2, 3\], not complex64"),
            ("complex64", np.zeros((2, 3), np.float32), r"is complex64 \[2, 3\], not float32"),
            ("bool", np.full((2, 3), 2), r"is bool \[2, 3\], not int64"),
            ("uint8", np.full((2, 3), 1), r"is uint8 \[2, 3\], not int64"),
            ("int8", np.full((2, 3), 1.0), r"is int8 \[2, 3\], not float64"),
            ("float32", np.full((2, 3), 1), r"is float32 \[2, 3\], not int64"),
            ("uint8", [[1, 2, 3], [4, 5, -1]], r"is uint8 \[2, 3\]; -1 is outside its range, 0 to 255"),
            ("int8", [[1.0, 2.0, 3.0]] * 2, r"is int8 \[2, 3\], not float64"),
            ("float32", [[1, 2, 3], [4, 5]], "input 't0': .*lists .* different lengths"),
            ("float32", None, "is float32 .*, not None; give numbers"),
            ("int32", np.full((2, 3), "a"), r"is int32 \[2, 3\], not text"),
        ],
    )
    def test_reports_wrong_dtypes_as_sessions_do(self, dtype: str, array: Any, message: str) -> None:
        with pytest.raises(InvalidInputs, match=message):
            runs({"t0": array}, slot(0, dtype))

    def test_per_channel_scales_give_no_hint_to_quantize(self) -> None:
        with pytest.raises(InvalidInputs, match=r"not float64; convert the array if intended: array.astype\('int8'\)$"):
            runs({"t0": np.full((2, 3), 0.5)}, slot(0, "int8", scale=(0.1, 0.2, 0.3)))

    def test_accepts_nan_only_on_request(self) -> None:
        (run,) = runs({"t0": np.full((2, 3), np.nan)}, slot(0), nan=True)
        assert np.isnan(run["t0"]).all()

    def test_strings_become_objects_and_numbers_the_input_dtype(self) -> None:
        (run,) = runs({"t0": np.array(["a", "žluť"])}, slot(0, "string", (2,)))
        assert (run["t0"].dtype, run["t0"].tolist()) == (object, ["a", "žluť"])
        (run,) = runs({"t0": [1, 300]}, slot(0, "int16", (2,)))
        assert (run["t0"].dtype, run["t0"].tolist()) == (np.int16, [1, 300])

    @pytest.mark.parametrize("array_shape", [(2, 5, 7, 11), (5, 7, 3), (2, 2, 5, 7, 3), (2, 5, 7)])
    def test_suggests_a_transpose_only_if_it_fits(self, array_shape: tuple[int, ...]) -> None:
        with pytest.raises(
            InvalidInputs, match=r"is float32 \[2, \?, 3, 5\], but the given array has shape \[[\d, ]+\]$"
        ):
            runs({"t0": np.zeros(array_shape)}, slot(0, shape=(2, None, 3, 5)))

    def test_suggests_a_transpose_only_with_known_channels(self) -> None:
        for last, hint in ((5, True), (None, False)):
            with pytest.raises(InvalidInputs) as raised:
                runs({"t0": np.zeros((2, 5, 7, 3))}, slot(0, shape=(2, 7, 3, last)))
            assert ("array.transpose(0, 2, 3, 1)" in str(raised.value)) is hint


class TestImage:
    @staticmethod
    def load(folder: Path, tensor: Tensor, metadata: TensorMetadata | None = None) -> Array:
        pixels = np.arange(72).reshape(4, 6, 3).astype(np.uint8)
        Image.fromarray(pixels).save(folder / "p.png")
        return load_image(folder / "p.png", "x", tensor, metadata or TensorMetadata())

    @pytest.mark.parametrize(
        ("dims", "shape"),
        [((None, 8, 9, 3), (8, 9)), ((1, None, 9, 3), (4, 6)), ((1, 8, None, 3), (4, 6))],
    )
    def test_image_is_resized_to_fixed_height_and_width(
        self, tmp_path: Path, dims: tuple[int | None, ...], shape: tuple[int, int]
    ) -> None:
        assert self.load(tmp_path, slot(0, shape=dims)).shape == (1, *shape, 3)

    @pytest.mark.parametrize("shape", [(1, 4, 6, 4), (1, 4, 6, 2), (4, 6, 1, 3, 2), (1, 4, 3)])
    def test_rejects_an_image_for_another_kind_of_input(self, tmp_path: Path, shape: tuple[int, ...]) -> None:
        with pytest.raises(InvalidInputs, match="which is not an image"):
            self.load(tmp_path, slot(0, shape=shape))

    def test_normalized_values_are_rounded_to_nearest(self, tmp_path: Path) -> None:
        metadata = TensorMetadata(mean=(0.0,), std=(1.0,))
        pixels = np.arange(72).reshape(1, 4, 6, 3)
        for dtype in ("uint8", "int16"):
            x = slot(0, dtype, (1, 4, 6, 3), 2.8, zero_point=3)
            assert (self.load(tmp_path, x, metadata) == np.rint(pixels / 2.8) + 3).all()
        float16_image = self.load(tmp_path, slot(0, "float16", (1, 4, 6, 3)), metadata)
        assert (float16_image.dtype, float16_image.max()) == (np.float16, 71)
        float_image = self.load(tmp_path, slot(0, "float32", (1, 4, 6, 3), 0.5, zero_point=3), metadata)
        assert (float_image == pixels).all()
        for incomplete in (TensorMetadata(mean=(9.0,)), TensorMetadata(std=(9.0,))):
            assert np.allclose(self.load(tmp_path, slot(0, shape=(1, 4, 6, 3)), incomplete), pixels / 255)
        unquantized_image = self.load(tmp_path, slot(0, "uint8", (1, 4, 6, 3)), metadata)
        assert (unquantized_image == pixels).all()
