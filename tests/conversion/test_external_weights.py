"""Saved models keep their weights, even if the process is killed at any moment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder
from onnx_tflite_plugin import conversion, files

SIZE = 503


@pytest.fixture(autouse=True)
def force_external_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat every model as too large for protobuf."""
    monkeypatch.setattr(conversion, "MAX_PROTO_BYTES", 10)


def convert_model(value: float) -> otp.Conversion:
    builder = ModelBuilder()
    g = builder.main
    x = g.input(f"x{value}", (2, SIZE))
    w = g.constant("w", np.full(SIZE, value, np.float32))
    g.operator("ADD", [x, w], [y := g.tensor("y", (2, SIZE))])
    g.output(y)
    return otp.convert(builder.build(), check="standard")


def weight_value(path: Path) -> float:
    """Return the value of all weights of a model; the model's input is named after it."""
    graph = onnx.load(path).graph
    (tensor,) = (initializer for initializer in graph.initializer if initializer.dims == [SIZE])
    (value,) = set(numpy_helper.to_array(tensor).tolist())
    assert [model_input.name for model_input in graph.input] == [f"x{value}"]
    return float(value)


def exit_at(step: int, folder: Path) -> None:
    """End the process when it is about to change a file in a folder for the n-th time."""
    remaining = step

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal remaining
        if event in ("open", "os.rename", "os.remove", "os.chmod", "os.mkdir", "os.rmdir") and any(
            str(folder) in os.fsdecode(argument)
            for argument in arguments
            if isinstance(argument, str | bytes | os.PathLike)
        ):
            remaining -= 1
            if remaining < 0:
                os._exit(9)

    sys.addaudithook(hook)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.parametrize("fits_in_protobuf", [False, True])
def test_killed_save_leaves_a_model_with_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fits_in_protobuf: bool
) -> None:
    old, new = convert_model(3.0), convert_model(5.0)
    values = []
    for step in range(200):
        (folder := tmp_path / str(step)).mkdir()
        path = folder / "model.onnx"
        old.save(path)
        child = os.fork()
        if not child:
            if fits_in_protobuf:
                conversion.MAX_PROTO_BYTES = 1 << 30
            exit_at(step, folder)
            try:
                new.save(path)
            finally:
                os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        values.append(weight_value(path))
        written_paths = convert_model(7.0).save(path)
        assert (sorted(folder.iterdir()), weight_value(path)) == (sorted(written_paths), 7.0)
        if code == 0:
            break
        assert code == 9
    assert (values[0], values[-1], len(set(values))) == (3.0, 5.0, 2)
    assert 10 < len(values) < 200


def test_old_weights_are_removed_after_the_model_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.onnx"
    first = convert_model(3.0).save(path)
    assert convert_model(3.0).save(path) == first
    second = convert_model(5.0).save(path)
    assert sorted(tmp_path.iterdir()) == sorted(second) != sorted(first)
    monkeypatch.setattr(conversion, "MAX_PROTO_BYTES", 1 << 30)
    assert convert_model(5.0).save(path) == [path]
    assert [*tmp_path.iterdir()] == [path]


def test_keeps_files_that_no_conversion_wrote(tmp_path: Path) -> None:
    path, other_files = tmp_path / "model.onnx", [tmp_path / "model.onnx.data", tmp_path / "mine.data"]
    _, data = convert_model(3.0).save(path)
    for other_file in other_files:
        other_file.write_bytes(b"not named by the model")
    written = convert_model(5.0).save(path)
    assert sorted(tmp_path.iterdir()) == sorted([*other_files, *written])
    data.write_bytes(b"named by no model, as after the model was renamed")
    convert_model(7.0).save(path)
    assert data.exists()


def test_weights_of_an_earlier_version_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    _, data = convert_model(3.0).save(path)
    old = onnx.load(path)
    onnx.save(old, path, save_as_external_data=True, location="model.onnx.data", size_threshold=0)
    data.unlink()
    written = convert_model(5.0).save(path)
    assert sorted(tmp_path.iterdir()) == sorted(written)


def test_failed_write_keeps_the_old_model_and_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.onnx"
    first = convert_model(3.0).save(path)
    rename = os.replace

    def fail(source: Any, target: Any) -> None:
        if Path(target) == path:
            raise OSError(28, "No space left on device", str(source))
        rename(source, target)

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="No space left") as caught:
        convert_model(5.0).save(path)
    assert caught.value.filename == str(path)
    assert (sorted(tmp_path.iterdir()), weight_value(path)) == (sorted(first), 3.0)


def test_models_with_long_similar_names_have_separate_weights(tmp_path: Path) -> None:
    paths = [tmp_path / f"{'x' * 240}{k}.onnx" for k in range(2)]
    written = [convert_model(3.0).save(path) for path in paths]
    assert written[0][1] != written[1][1]
    convert_model(5.0).save(paths[0])
    assert (weight_value(paths[0]), weight_value(paths[1])) == (5.0, 3.0)


def test_weights_file_name_is_a_hash_of_its_content(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    (_, first), (_, second) = (convert_model(3.0).save(tmp_path / name / "model.onnx") for name in "ab")
    assert first.name == second.name
    assert files._is_weights(first.name, Path("model.onnx"))


def test_concurrent_saves_leave_a_valid_model(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    children = []
    for value in (3.0, 5.0, 7.0):
        model = convert_model(value)
        if not (child := os.fork()):
            try:
                for _ in range(20):
                    model.save(path)
            finally:
                os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    assert weight_value(path) in (3.0, 5.0, 7.0)


def test_open_session_keeps_the_old_weights(tmp_path: Path) -> None:
    """On Windows open files cannot be removed, so new weights have a different name."""
    path = tmp_path / "model.onnx"
    convert_model(3.0).save(path)
    program = (
        "import sys, numpy as np, onnxruntime as ort; session = ort.InferenceSession(sys.argv[1]); print('ready', flush=True);"
        f"input(); print(session.run(None, {{'x3.0': np.zeros((2, {SIZE}), np.float32)}})[0].max())"
    )
    pipe = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", program, str(path)], text=True, **pipe) as reader:  # type: ignore[call-overload]
        assert reader.stdout.readline() == "ready\n"
        convert_model(5.0).save(path)
        assert reader.communicate("\n")[0] == "3.0\n"
