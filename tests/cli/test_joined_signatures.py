"""``--signature all``: one model if only sequence lengths differ, else several."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conformance.language_model import Sizes, language_model
from tests.helpers.command import Run
from tests.helpers.command_models import model


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Write a small language model of several signatures."""
    path = tmp_path / "model.tflite"
    path.write_bytes(language_model(Sizes("columns", simplify_decode=True, layers=3)))
    return path


def onnx_files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.onnx"))


def test_joins_signatures_of_a_language_model(source: Path, run: Run) -> None:
    code, out, _ = run("convert", source, "--signature", "all", "--attention", "causal", "--verify")
    assert code == 0
    assert onnx_files(source.parent) == ["model.onnx"]
    assert "'prefill_5', 'decode' in one model, which takes any number of tokens" in out
    assert run("verify", source, source.with_suffix(".onnx"))[0] == 0


def test_signature_each_writes_one_file_per_signature(source: Path, run: Run) -> None:
    assert run("convert", source, "--signature", "each")[0] == 0
    assert onnx_files(source.parent) == ["model.decode.onnx", "model.prefill_5.onnx"]


def test_report_has_the_sequence_length_of_each_signature(source: Path, run: Run) -> None:
    report = json.loads(run("convert", source, "--signature", "all", "--json").out)
    assert report["signature_lengths"] == {"prefill_5": 5, "decode": 1}
    assert report["other_signatures"] == []


def test_reports_why_signatures_cannot_be_joined(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(model(signatures=2))
    code, out, _ = run("convert", path, "--signature", "all")
    assert code == 0
    assert onnx_files(tmp_path) == ["m.first_one.onnx", "m.second.onnx"]
    reason = " ".join(out.split())
    assert (
        "the signatures cannot be joined into one model: only the signatures of a language model can be joined"
        in reason
    )
    assert "do not differ in this way" in reason


def test_summary_omits_the_folder_if_it_is_the_current_one(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m.tflite").write_bytes(model(signatures=2))
    monkeypatch.chdir(tmp_path)
    _, out, _ = run("convert", "m.tflite", "--signature", "all")
    assert out.splitlines()[-1] == "converted    2 of 2 models"


def test_logits_last_needs_joined_signatures(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(model(signatures=2))
    code, _, err = run("convert", path, "--signature", "all", "--logits", "last")
    assert code == 2
    assert "--logits last: the signatures cannot be joined into one model" in " ".join(err.split())
    assert not onnx_files(tmp_path)


def test_options_for_one_signature_prevent_joining(source: Path, run: Run) -> None:
    _, out, _ = run("convert", source, "--signature", "all", "--dynamic-batch")
    assert "--dynamic-batch applies to a single signature only" in " ".join(out.split())
