"""Bundles: zip files and LiteRT-LM files that contain models."""

from __future__ import annotations

import json
import re
import shlex
import struct
import zipfile
from pathlib import Path

import onnx
import pytest

from conformance.builder import ModelBuilder
from onnx_tflite_plugin.errors import InvalidModel
from onnx_tflite_plugin.source import bundle as bundles
from onnx_tflite_plugin.source import read_bytes
from onnx_tflite_plugin.source.bundle import members
from tests.helpers.command import Run
from tests.helpers.command_models import model, zip_entries
from tests.helpers.metadata_files import classifier_metadata, model_with_metadata, serialize


def test_converts_nested_bundles(run: Run, tmp_path: Path) -> None:
    inner = zip_entries({"hand.tflite": model("EXP"), "labels.txt": b"x"})
    (tmp_path / "gesture.task").write_bytes(zip_entries({"detector.tflite": model(), "hand.task": inner}))
    assert run("convert", tmp_path / "gesture.task")[0] == 0
    assert {file.name for file in (tmp_path / "gesture").iterdir()} == {"detector.onnx", "hand.task_hand.onnx"}
    output = json.loads(run("inspect", tmp_path / "gesture.task", "--json")[1])
    assert [(part["name"], part["kind"]) for part in output["parts"]] == [
        ("detector.tflite", "model"),
        ("hand.task/hand.tflite", "model"),
        ("hand.task/labels.txt", "txt"),
    ]


def test_every_command_takes_a_part_of_a_bundle(run: Run, tmp_path: Path) -> None:
    (tmp_path / "b.task").write_bytes(zip_entries({"neg.tflite": model(), "exp.tflite": model("EXP")}))
    bundle_member = f"{tmp_path / 'b.task'}#exp"
    assert run("convert", bundle_member).code == 0
    assert [node.op_type for node in onnx.load(tmp_path / "exp.onnx").graph.node] == ["Exp"]
    assert "EXP" in run("inspect", bundle_member).out
    assert run("verify", bundle_member, tmp_path / "exp.onnx").code == 0
    assert run("bench", bundle_member, "--rounds", "3").code == 0
    assert run("report", bundle_member, tmp_path / "exp.onnx").code == 0


def test_command_that_needs_one_model_lists_the_models_of_a_bundle(run: Run, tmp_path: Path) -> None:
    (tmp_path / "b.task").write_bytes(zip_entries({"neg.tflite": model(), "exp.tflite": model("EXP")}))
    (tmp_path / "m.onnx").touch()
    message = f"{tmp_path / 'b.task'} holds 2 models: 'neg.tflite', 'exp.tflite'; "
    for text, *command in (
        (
            f"{message}name one of them, such as {tmp_path / 'b.task'}#neg.tflite",
            "verify",
            tmp_path / "b.task",
            tmp_path / "m.onnx",
        ),
        (
            f"{message}'nex.tflite' is none of these names; did you mean 'neg.tflite'?",
            "convert",
            f"{tmp_path / 'b.task'}#nex.tflite",
        ),
        (f"{message}'.tflite' is part of several names", "bench", f"{tmp_path / 'b.task'}#.tflite"),
    ):
        code, _, err = run(*command)
        assert (code, err) == (2, f"error: {text}\n")


def test_bundle_of_one_model_is_written_to_the_named_file(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "chat.litertlm"
    path.write_bytes(litert_lm([(5, b"proto"), (3, model())]))
    code, out, _ = run("convert", path, tmp_path / "chat.onnx")
    assert code == 0
    assert "inputs " in out
    assert (tmp_path / "chat.onnx").is_file()
    assert run("verify", path, tmp_path / "chat.onnx").code == 0


def test_single_output_for_several_models_is_a_usage_error(run: Run, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "b.task").write_bytes(zip_entries({"neg.tflite": model(), "exp.tflite": model("EXP")}))
    code, _, err = run("convert", tmp_path / "b.task", tmp_path / "b.onnx")
    assert (code, (tmp_path / "b.onnx").exists()) == (2, False)
    assert "holds 2 models, but the file" in err
    code, _, err = run("convert", folder, "-")
    assert code == 2
    assert "a folder of models cannot be written to stdout; name a folder" in err


def test_bundle_members_stay_inside_the_output_folder(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "b.task").write_bytes(zip_entries({"../../evil.tflite": model(), "/abs.tflite": model()}))
    run("convert", tmp_path / "in" / "b.task")
    assert {file.parent.name for file in tmp_path.rglob("*.onnx")} == {"b"}


@pytest.mark.parametrize("prefix", [b"\0\0", b"#!/bin/sh\n"])
def test_bundle_may_have_a_prefix(run: Run, tmp_path: Path, prefix: bytes) -> None:
    """Zip readers start at the end. Some MediaPipe archives begin with two zero bytes."""
    path = tmp_path / "b.task"
    path.write_bytes(prefix + zip_entries({"a.tflite": model()}))
    assert "1 part, 1 model" in run("inspect", path)[1]
    assert run("convert", path)[0] == 0
    assert (tmp_path / "b" / "a.onnx").exists()


def test_model_with_associated_files_is_not_a_bundle(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "pets.tflite"
    path.write_bytes(model_with_metadata(classifier_metadata()))
    assert zipfile.is_zipfile(path)
    assert run("convert", path)[0] == 0
    assert path.with_suffix(".onnx").exists()


def litert_lm(sections: list[tuple[int, bytes]]) -> bytes:
    """Return a LiteRT-LM file with a header and these sections."""
    start, tables = 16384, []
    body = b""
    for kind, content in sections:
        begin = start + len(body)
        body += content
        tables.append({1: ("Uint64", begin), 2: ("Uint64", begin + len(content)), 3: ("Uint8", kind)})
    header = serialize({1: {0: tables}})
    header_bytes = b"LITERTLM" + struct.pack("<IIII", 1, 0, 0, 0) + struct.pack("<Q", 32 + len(header)) + header
    return header_bytes + bytes(start - len(header_bytes)) + body


def test_converts_models_of_a_litert_lm_bundle(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "chat.litertlm"
    path.write_bytes(litert_lm([(5, b"proto"), (3, model()), (4, b"words")]))
    _, out, _ = run("inspect", path)
    for text in ("LLM metadata", "SentencePiece tokenizer", "3 parts, 1 model"):
        assert text in out
    assert run("convert", path)[0] == 0
    assert [file.name for file in (tmp_path / "chat").iterdir()] == ["section_1.onnx"]


def test_inspect_shows_the_only_model_of_a_bundle(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "chat.litertlm"
    path.write_bytes(litert_lm([(5, b"proto"), (3, model("EXP"))]))
    out = run("inspect", path).out
    assert "LLM metadata" in out
    (line,) = (line for line in out.splitlines() if line.startswith("model  "))
    assert re.search(r"^ +1  EXP ", out, re.MULTILINE)
    printed = line.removeprefix("model").split(" (")[0]
    (argument,) = shlex.split(printed)
    assert argument.endswith("#section 1")
    assert run("convert", argument, tmp_path / "m.onnx").code == 0
    output = json.loads(run("inspect", path, "--json").out)
    assert [row["code"] for row in output["model"]["operators"]] == ["EXP"]
    assert len(output["parts"]) == 2


def test_inspect_shows_caches_of_all_layers_in_one_line(run: Run, tmp_path: Path) -> None:
    builder = ModelBuilder()
    g = builder.main
    caches = [g.input(f"cache_{k}", (1, 7)) for k in range(12)]
    for k, cache in enumerate(caches):
        g.operator("NEG", [cache], [y := g.tensor(f"new_{k}", (1, 7))])
        g.output(y)
    (tmp_path / "m.tflite").write_bytes(builder.build())
    out = run("inspect", tmp_path / "m.tflite").out
    assert "cache_0 … cache_11  12 × float32 [1, 7]" in out
    assert "new_0 … new_11  12 × float32 [1, 7]" in out


def test_litert_lm_section_is_named_by_model_type_and_must_lie_in_the_file() -> None:
    body = bytes(16384) + model()
    kind, end = ("Uint8", 3), ("Uint64", len(body))
    items = [{0: "other", 1: ("Uint8", 9), 2: {0: "x"}}, {0: "model_type", 1: ("Uint8", 9), 2: {0: "prefill"}}]

    def bundle_bytes(section_end: tuple[str, int]) -> bytes:
        header = serialize({1: {0: [{0: items, 1: ("Uint64", 16384), 2: section_end, 3: kind}]}})
        return b"LITERTLM" + bytes(16) + struct.pack("<Q", 32 + len(header)) + header + body[32 + len(header) :]

    (member,) = members(bundle_bytes(end), "x")
    assert (member.name, read_bytes(member.load())) == ("section 0 prefill", model())
    with pytest.raises(InvalidModel, match=f"bytes 16384 to {len(body) + 1} are outside the file of {len(body)} bytes"):
        members(bundle_bytes(("Uint64", len(body) + 1)), "x")


@pytest.mark.parametrize("cut", [9, 20, 31, 36, 45, 60])
def test_rejects_a_damaged_bundle(cut: int) -> None:
    with pytest.raises(InvalidModel):
        members(litert_lm([(3, model())])[:cut], "x")
    with pytest.raises(InvalidModel):
        members(zip_entries({"a.tflite": model()})[:-cut], "x")


def test_limits_the_number_of_files_of_a_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of nested archives are counted."""
    monkeypatch.setattr(bundles, "MAX_MEMBERS", 3)
    inner = zip_entries({"b.txt": b"b", "folder/": b""})
    assert [part.name for part in members(zip_entries({"a.txt": b"ab", "n.task": inner}), "x")] == [
        "a.txt",
        "n.task/b.txt",
    ]
    with pytest.raises(InvalidModel, match="the bundle holds more than 3 files"):
        members(zip_entries({"a.txt": b"ab", "n.task": inner, "c.txt": b"c"}), "x")
