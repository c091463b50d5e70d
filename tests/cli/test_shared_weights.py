"""``--signature each``: equal weights of signatures are stored once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import onnx_tflite_plugin as otp
from conformance.language_model import Sizes, causal_mask, language_model
from onnx_tflite_plugin.runtime import Session
from onnx_tflite_plugin.shared_weights import MIN_SAVED_BYTES
from tests.helpers.command import Run

LARGE = Sizes("columns", vocabulary=2053, width=136)
TABLE = 2053 * 136 * 4  # bytes of the embedding, which both signatures have
KEYS = ("prefill_5", "decode")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Write a language model with large weights."""
    path = tmp_path / "model.tflite"
    path.write_bytes(language_model(LARGE))
    return path


def data_files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.data"))


def test_equal_weights_are_stored_once(source: Path, run: Run) -> None:
    assert run("convert", source, "--signature", "each")[0] == 0
    folder = source.parent
    [data] = data_files(folder)
    separate = {key: otp.convert(source, signature=key) for key in KEYS}
    sizes = [(folder / f"model.{key}.onnx").stat().st_size for key in KEYS]
    separate_bytes = sum(conversion.proto.ByteSize() for conversion in separate.values())
    assert max(sizes) < 2**16
    assert TABLE <= separate_bytes - sum(sizes) - (folder / data).stat().st_size < 2 * TABLE
    for key in KEYS:
        stored = onnxruntime.InferenceSession(folder / f"model.{key}.onnx")
        memory = onnxruntime.InferenceSession(separate[key].proto.SerializeToString())
        random = np.random.default_rng(3)
        feeds = {x.name: random.standard_normal(x.shape).astype(np.float32) for x in memory.get_inputs()[2:]}
        count = memory.get_inputs()[1].shape[0]
        feeds |= {"tokens": np.arange(count, dtype=np.int32)[None], "input_pos": np.arange(count, dtype=np.int32)}
        feeds["mask"] = causal_mask(LARGE, 0, count)
        for shared_result, result in zip(stored.run(None, feeds), memory.run(None, feeds), strict=True):
            np.testing.assert_array_equal(shared_result, result)


def test_sessions_of_shared_weights_generate(source: Path, run: Run) -> None:
    assert run("convert", source, "--signature", "each", "--attention", "causal", "--verify")[0] == 0
    prompt_session = Session(source.with_name("model.prefill_5.onnx"))
    decode = Session(source.with_name("model.decode.onnx"), states_of=prompt_session)
    token_session = Session(otp.convert(source, signature="decode", attention="causal"))
    assert decode.generate([3, 17, 5, 23, 11, 2], 5, prefill=prompt_session) == token_session.generate(
        [3, 17, 5, 23, 11, 2], 5
    )


def test_report_lists_both_files_of_each_model(source: Path, run: Run) -> None:
    out = run("convert", source, "--signature", "each", "--json").out
    [data] = data_files(source.parent)
    for model in json.loads(out)["models"]:
        assert [Path(file["path"]).name for file in model["files"]][1] == data
        assert all(Path(file["path"]).stat().st_size == file["bytes"] for file in model["files"])
    assert f"{data}: " in run("convert", source, "--signature", "each").out


def test_external_data_is_aligned_and_in_bounds(source: Path, run: Run) -> None:
    run("convert", source, "--signature", "each")
    for key in KEYS:
        proto = onnx.load(source.with_name(f"model.{key}.onnx"), load_external_data=False)
        entries = [{e.key: e.value for e in t.external_data} for t in proto.graph.initializer if t.external_data]
        assert entries
        for entry in entries:
            assert int(entry["offset"]) % 4096 == 0
            size = (source.parent / entry["location"]).stat().st_size
            assert int(entry["offset"]) + int(entry["length"]) <= size


def test_small_models_have_no_shared_file(tmp_path: Path, run: Run) -> None:
    source = tmp_path / "model.tflite"
    source.write_bytes(language_model(Sizes("rows")))
    assert run("convert", source, "--signature", "each")[0] == 0
    assert not data_files(tmp_path)
    for key in KEYS:
        proto = otp.convert(source, signature=key).proto
        assert onnx.load(tmp_path / f"model.{key}.onnx") == proto
        assert proto.ByteSize() < MIN_SAVED_BYTES


def test_later_conversion_removes_unreferenced_weights(source: Path, run: Run) -> None:
    run("convert", source, "--signature", "each")
    [before] = data_files(source.parent)
    run("convert", source, "--signature", "each", "--quantization", "float")  # equal weights, the same file
    assert data_files(source.parent) == [before]
    source.write_bytes(language_model(Sizes("columns", vocabulary=2063, width=136)))
    run("convert", source, "--signature", "each")
    [after] = data_files(source.parent)
    assert after != before


def test_keeps_weights_referenced_by_another_model(source: Path, run: Run) -> None:
    run("convert", source, "--signature", "each")
    [before] = data_files(source.parent)
    copy = source.with_name("kept.onnx")
    copy.write_bytes(source.with_name("model.decode.onnx").read_bytes())
    run("convert", source, source.with_name("model.decode.onnx"), "--signature", "decode")
    assert data_files(source.parent) == [before]
    source.write_bytes(language_model(Sizes("columns", vocabulary=2063, width=136)))
    run("convert", source, "--signature", "each")
    assert before in data_files(source.parent)
    onnxruntime.InferenceSession(copy)
