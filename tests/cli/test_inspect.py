"""The command ``inspect``: operators, missing handlers, inputs and outputs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conformance.builder import ModelBuilder, quant
from conformance.models import Net, tensor
from tests.helpers.command import Run
from tests.helpers.metadata_files import LABELS, classifier_metadata, model_with_metadata, serialize


@pytest.fixture
def mixed_path(tmp_path: Path) -> Path:
    """Write a model with all that ``inspect`` lists.

    It has a missing operator, a dynamic size, a signature, states, metadata and an uncalled subgraph.
    """
    model = ModelBuilder("a description")
    g = model.main
    x = g.input("x", (None, 3), "int8", quantization=quant(0.5, -3))
    twice, odd = (g.tensor(name, (None, 3), "int8", quantization=quant(0.5, -3)) for name in ("twice", "odd"))
    g.operator("ADD", [x, x], [twice])
    g.operator(
        "ADD", [twice, x], [twice2 := g.tensor("more", (None, 3), "int8", quantization=quant(0.5, -3))], version=2
    )
    g.operator("CUSTOM.Odd", [twice2], [odd])
    g.operator("VAR_HANDLE", [], [g.tensor("handle", (), "resource")], {"container": "box", "shared_name": "kept"})
    g.tensor("memory", (1, 4), variable=True)
    g.output(odd)
    model.signature("serve", {"image": x}, {"label": odd})
    model.metadata("min_runtime_version", b"2.3.0")
    uncalled = model.subgraph("lost")
    a, b = uncalled.input("a", (1,)), uncalled.tensor("b", (1,))
    uncalled.operator("CUSTOM.Unreached", [a], [b])
    uncalled.output(b)
    path = tmp_path / "mixed.tflite"
    path.write_bytes(model.build())
    return path


def test_inspect_succeeds_with_a_missing_handler(run: Run, mixed_path: Path) -> None:
    code, out, err = run("inspect", mixed_path)
    assert (code, err) == (0, "")
    for text in (
        "5 operators, 2 subgraphs",
        "a description",
        "x  int8 [?, 3]  scale 0.5, zero point -3",
        "1 'lost': 1 operator, never called",
        "'serve': image → label",
        "variable tensor memory",
        "resource box/kept",
        "min_runtime_version",
        "CUSTOM.Odd (op 2): no installed pack has a handler for it",
        "new-pack DIR --op CUSTOM.Odd",
    ):
        assert text in out
    table = [line.split() for line in out.splitlines() if line.strip()[:1].isdigit()]
    assert ["2", "ADD", "1,", "2", "built-in"] in table
    assert ["1", "CUSTOM.Odd", "1", "none"] in table
    detailed = [line.split() for line in run("inspect", mixed_path, "--details")[1].splitlines()]
    assert ["2", "ADD", "1,", "2", "built-in", "Transparent", "Dequantized"] in detailed
    assert not mixed_path.with_suffix(".onnx").exists()


def test_inspect_warns_if_convert_refuses_the_model(run: Run, tmp_path: Path) -> None:
    model = ModelBuilder()
    x, lost, y = model.main.input("x", (3,)), model.main.tensor("lost", (3,)), model.main.tensor("y", (3,))
    model.main.operator("ADD", [x, lost], [y])
    model.main.output(y)
    path = tmp_path / "contradictory.tflite"
    path.write_bytes(model.build())
    code, out, err = run("inspect", path)
    assert (code, err) == (0, "")
    table, _, warning = out.partition("\nwarning")
    assert "built-in" in table
    assert "convert refuses the model: the file contradicts itself" in warning
    assert "tensor 1 'lost' holds no data and nothing computes it" in warning


def test_inspect_lists_the_models_of_a_folder(run: Run, mixed_path: Path) -> None:
    folder = mixed_path.parent
    (folder / "inner").mkdir()
    (folder / "inner" / "broken.tflite").write_bytes(b"nothing")
    code, out, _ = run("inspect", folder)
    lines = [line.split() for line in out.splitlines()]
    assert code == 0
    assert lines[2][-2:] == ["mixed.tflite", "CUSTOM.Odd"]
    assert "inner/broken.tflite" in lines[1]
    assert "2 models, 0 of them with a handler for every operator" in out
    entries = json.loads(run("inspect", folder, "--json").out)["models"]
    assert ["error" in entry for entry in entries] == [True, False]
    (folder / "none").mkdir()
    assert run("inspect", folder / "none").code == 2


def test_inspect_names_the_signature_of_the_listed_inputs(run: Run) -> None:
    out = run("inspect", Path(__file__).parents[2] / "examples" / "language_model.tflite").out
    assert "inputs and outputs of 'prefill_5'; convert uses it by default" in out
    assert "signature 'decode'" in out
    assert "never called" not in out


def test_each_version_is_listed_once(run: Run, tmp_path: Path) -> None:
    net = Net()
    net.output(net.call("NEG", [net.call("NEG", [tensor(2, 3)], tensor(2, 3))], tensor(2, 3)))
    (path := tmp_path / "twice.tflite").write_bytes(net.build())
    (row,) = json.loads(run("inspect", path, "--json")[1])["operators"]
    assert (row["count"], row["versions"]) == (2, [1])


def test_inspect_as_json(run: Run, mixed_path: Path) -> None:
    output = json.loads(run("inspect", mixed_path, "--json")[1])
    assert output["missing"] == ["CUSTOM.Odd"]
    assert output["inputs"] == [
        {
            "name": "x",
            "index": 0,
            "dtype": "int8",
            "shape": [None, 3],
            "quantization": {"scale": [0.5], "zero_point": [-3], "axis": 0},
            "metadata": {
                **dict.fromkeys(("kind", "description"), ""),
                **{name: [] for name in ("mean", "std", "labels", "files")},
                **dict.fromkeys(("range", "threshold")),
            },
        }
    ]
    add = next(row for row in output["operators"] if row["code"] == "ADD")
    assert (add["count"], add["versions"], add["pack"]) == (2, [1, 2], "onnx-tflite-plugin")
    assert (add["layout"], add["quantization"]) == ("Transparent", "Dequantized")
    assert output["signatures"][0]["key"] == "serve"
    assert [state["name"] for state in output["states"]] == ["memory", "box/kept"]
    assert [graph["called"] for graph in output["subgraphs"]] == [True, False]


def test_inspect_lists_files_of_the_whole_model(run: Run, tmp_path: Path) -> None:
    (path := tmp_path / "m.tflite").write_bytes(
        model_with_metadata(serialize({6: [{0: "namen.txt", 1: "the words", 2: ("Int8", 5)}, {0: "lost.txt"}]}))
    )
    lines = run("inspect", path).out.splitlines()
    start = next(k for k, line in enumerate(lines) if line.startswith("files "))
    assert [line[13:] for line in lines[start : start + 4]] == [
        "namen.txt (10 bytes, vocabulary, the words)",
        "lost.txt (not in the model)",
        "labels.txt (21 bytes)",
        "a zip program extracts them from the model, such as unzip",
    ]


def test_inspect_shows_metadata_of_inputs_and_outputs(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "pets.tflite"
    path.write_bytes(model_with_metadata(classifier_metadata()))
    out = run("inspect", path)[1].splitlines()
    for text in (
        "image, normalized (x - 127.5) / 63.5, values -2 to 1",
        "score threshold 0.25",
        f"{len(LABELS)} labels: ",
    ):
        assert any(text in line for line in out)
    (y,) = json.loads(run("inspect", path, "--json")[1])["outputs"]
    assert (y["metadata"]["labels"], y["metadata"]["threshold"]) == (LABELS, 0.25)


def test_shared_hint_is_printed_once(run: Run, tmp_path: Path) -> None:
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (2, 3))
    for name in ("Lgamma", "Digamma", "Zeta"):
        y = g.tensor(name, (2, 3))
        g.operator(f"CUSTOM.Flex{name}", [x], [y])
        x = y
    g.output(x)
    path = tmp_path / "flex.tflite"
    path.write_bytes(model.build())
    for out in (run("inspect", path)[1], run("convert", path)[2]):
        hints = [line.strip() for line in out.splitlines() if line.strip().startswith("hint")]
        assert len(hints) == 1
        assert hints[0].startswith("hint to the 3 problems above: an op pack can convert them")
        assert "--op CUSTOM.FlexLgamma" in hints[0]


def test_inspect_rejects_a_file_of_another_format(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "x.tflite"
    path.write_bytes(b"")
    assert run("inspect", path)[0] == 1
    assert run("inspect", tmp_path / "missing.tflite")[0] == 2


def test_inspect_merges_rows_that_differ_only_in_details() -> None:
    from onnx_tflite_plugin.cli.inspect import _merge_rows

    row = {"code": "ADD", "called": True, "signatures": (), "missing": "", "pack": "p", "count": 2, "versions": [1]}
    merged = _merge_rows([{**row, "layout": "Transparent"}, {**row, "layout": "Attribute", "versions": [2]}])
    assert [(entry["count"], entry["versions"]) for entry in merged] == [(4, [1, 2])]


def test_inspect_details_explain_layouts_and_quantization(run: Run) -> None:
    out = run("inspect", Path(__file__).parents[2] / "examples" / "digits_int8.tflite", "--details").out
    assert "Terminate: Source layout only" in out
    assert "Dequantized: Dequantize, compute in float, quantize" in out
