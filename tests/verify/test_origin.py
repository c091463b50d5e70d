"""Test the digest that links an ONNX model to its TFLite file."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder
from onnx_tflite_plugin.errors import InvalidModel, MismatchedModels
from onnx_tflite_plugin.graph.metadata import props
from onnx_tflite_plugin.graph.model_metadata import read_digest
from onnx_tflite_plugin.page.content import collect_page_data
from onnx_tflite_plugin.source import content
from onnx_tflite_plugin.verify import verify
from onnx_tflite_plugin.verify.times.bench import bench
from tests.helpers.wrong_models import without_digest


def add_constant(value: float) -> bytes:
    model = ModelBuilder()
    g = model.main
    x, y, z = g.input("x", (2, 3)), g.tensor("y", (2, 3)), g.tensor("z", (2, 3))
    g.operator("ADD", [x, g.constant("c", np.array([value], np.float32))], [y])
    g.operator("ABS", [y], [z])
    g.output(z)
    return model.build()


ADD_ONE, ADD_TWO = add_constant(1.0), add_constant(2.0)


def digest_of(proto: onnx.ModelProto) -> str:
    return read_digest(props(proto.metadata_props))


@pytest.mark.parametrize("run", [verify, bench, lambda data, proto: collect_page_data(data, proto, "two.tflite")])
def test_another_file_is_a_mismatch_even_if_it_computes_the_same(run: Callable[[bytes, onnx.ModelProto], Any]) -> None:
    with pytest.raises(
        MismatchedModels, match="the ONNX model was converted from a different TFLite file, not"
    ) as caught:
        run(ADD_ONE + b"\0" * 4, otp.convert(ADD_ONE).proto)
    assert caught.value.exit_code == 2


def test_mismatch_names_both_files_and_remedies(tmp_path: Path) -> None:
    other_path, converted = tmp_path / "other.tflite", tmp_path / "one.onnx"
    other_path.write_bytes(ADD_TWO)
    otp.convert(ADD_ONE).save(converted)
    with pytest.raises(MismatchedModels) as caught:
        verify(other_path, converted)
    assert caught.value.message == (
        "one.onnx was converted from a different TFLite file, not other.tflite, so the two cannot be compared; "
        "pass the file it was converted from, or convert other.tflite again"
    )


def test_model_without_digest_is_compared_with_a_note() -> None:
    proto_without_digest = without_digest(otp.convert(ADD_ONE).proto)
    note = "the ONNX model does not record its TFLite file, so it may not be the conversion of the given TFLite model"
    assert verify(ADD_TWO, proto_without_digest).verdict == "differs"
    verification = verify(ADD_ONE, proto_without_digest)
    assert verification.verdict == "agrees"
    assert verification.notes.count(note) == 1
    assert bench(ADD_ONE, proto_without_digest, rounds=3).notes == (note,)
    assert note in collect_page_data(ADD_ONE, proto_without_digest, "one.tflite").verification_notes


def test_model_with_the_digest_of_the_file_has_no_note() -> None:
    converted = otp.convert(ADD_ONE).proto
    assert not any("does not record" in note for note in verify(ADD_ONE, converted).notes)
    assert bench(ADD_ONE, converted, rounds=3).notes == ()


def test_digest_depends_only_on_the_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, bundle = tmp_path / "one.tflite", tmp_path / "models.task"
    path.write_bytes(ADD_ONE)
    with zipfile.ZipFile(bundle, "w") as archive:
        archive.writestr("one.tflite", ADD_ONE)
        archive.writestr("two.tflite", ADD_TWO, zipfile.ZIP_DEFLATED)
    assert (
        digest_of(otp.convert(ADD_ONE).proto)
        == digest_of(otp.convert(path).proto)
        == hashlib.sha256(ADD_ONE).hexdigest()
    )
    for part, data in (("one.tflite", ADD_ONE), ("two.tflite", ADD_TWO)):
        proto = otp.convert(f"{bundle}#{part}").proto
        assert digest_of(proto) == hashlib.sha256(data).hexdigest()
        assert verify(f"{bundle}#{part}", proto).verdict == "agrees"
    monkeypatch.setattr(content, "_CHUNK", 100)
    assert digest_of(otp.convert(path).proto) == hashlib.sha256(ADD_ONE).hexdigest()


def test_submodels_and_shapes_keep_the_digest_of_the_file() -> None:
    for options in ({"outputs": ("y",)}, {"input_shape": {"x": (5, 3)}}):
        proto = otp.convert(ADD_ONE, **options).proto
        assert digest_of(proto) == hashlib.sha256(ADD_ONE).hexdigest()
        assert verify(ADD_ONE, proto).verdict == "agrees"


def add_signatures(*pairs: tuple[str, str]) -> bytes:
    """Return a model with a signature per (key, code), each from its own subgraph."""
    model = ModelBuilder()
    for index, (key, code) in enumerate(pairs):
        g = model.main if index == 0 else model.subgraph(key)
        x, y = g.input("x", (2, 3)), g.tensor("y", (2, 3))
        g.operator(code, [x], [y])
        g.output(y)
        model.signature(key, {"x": x}, {"y": y}, g.index)
    model.signature("alias", {"x": x}, {"y": y}, g.index)
    return model.build()


@pytest.mark.parametrize("run", [verify, bench])
def test_signature_that_was_not_converted_is_a_mismatch(run: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "abs.onnx"
    data = add_signatures(("abs", "ABS"), ("neg", "NEG"))
    otp.convert(data, signature="abs").save(path)
    message = (
        "abs.onnx was converted from signature 'abs', not 'neg', so the two cannot be compared; leave out signature"
    )
    with pytest.raises(MismatchedModels, match=message) as caught:
        run(data, path, signature="neg")
    assert caught.value.exit_code == 2


def test_signatures_of_the_same_tensors_are_equivalent() -> None:
    data = add_signatures(("abs", "ABS"), ("neg", "NEG"))
    assert verify(data, otp.convert(data, signature="neg").proto, signature="alias").verdict == "agrees"


def test_unreadable_file_is_not_described_as_a_different_file(tmp_path: Path) -> None:
    path = tmp_path / "cut.tflite"
    path.write_bytes(ADD_ONE[:-100])
    with pytest.raises(InvalidModel, match=r"cannot read cut\.tflite") as caught:
        verify(path, otp.convert(ADD_ONE).proto)
    assert "damaged or cut short" in str(caught.value)
