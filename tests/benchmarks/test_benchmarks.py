"""Tests of the benchmark: a line or a reason for each model and converter."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from onnx import TensorProto, helper, numpy_helper

import onnx_tflite_plugin as otp
from benchmarks import __main__ as main
from benchmarks import model, record
from benchmarks.__main__ import benchmark, models_by_name
from benchmarks.model import bench, bench_in_process
from benchmarks.peers import COMMANDS, NotConverted, Ours, Peer, find_peers
from benchmarks.results import Graph, Outcome, Row
from conformance.models import Net, Spec, constant, tensor
from onnx_tflite_plugin.cli.failures import UsageProblem
from onnx_tflite_plugin.verify import Comparison, verify
from onnx_tflite_plugin.verify.times.bench import Spread

EXAMPLES = Path(__file__).parents[2] / "examples"
INT8, FLOAT = (EXAMPLES / f"digits_{kind}.tflite" for kind in ("int8", "float"))
FALSE_COMMAND = shutil.which("false") or ""  # a program that has no package

FAKE = """
    import sys, time
    from pathlib import Path
    source, target = sys.argv[sys.argv.index("--tflite") + 1], sys.argv[sys.argv.index("--output") + 1]
"""


@pytest.fixture(scope="module")
def example_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    """Run the command on the example models; return the result and its folder.

    Other converters are not used.
    """
    folder = tmp_path_factory.mktemp("benchmark")
    arguments = [FLOAT, INT8, "--rounds", "2", "--png", folder / "ratios.png", "--json", folder / "ratios.json"]
    arguments += ["--peer-python", f"tf2onnx={folder / 'none'}", "--peer-python", f"tflite2onnx={FALSE_COMMAND}"]
    return CliRunner().invoke(benchmark, [str(argument) for argument in arguments]), folder


class TestCommand:
    def test_every_model_has_a_finite_ratio_and_agrees_with_litert(self, example_run: tuple[Result, Path]) -> None:
        result, folder = example_run
        assert result.exit_code == 0, result.output
        results = json.loads((folder / "ratios.json").read_text())
        assert [(row["model"], row["kind"]) for row in results["models"]] == [
            ("digits_float", "float"),
            ("digits_int8", "int8"),
        ]
        for row in results["models"]:
            (ours,) = row["outcomes"]
            assert ours["converter"] == "ours"
            assert ours["within_tolerance"]
            assert 0 < row["seconds"]["low"] <= row["seconds"]["median"] <= row["seconds"]["high"] < 1
            assert 0 < ours["ratio"]["low"] <= ours["ratio"]["median"] <= ours["ratio"]["high"] < 1000
            assert 0 < ours["best_ratio"] < 1000
            assert ours["graph"]["nodes"] > 0

    def test_table_names_machine_models_and_absent_converters(self, example_run: tuple[Result, Path]) -> None:
        text = example_run[0].output
        assert "1 thread each, LiteRT" in text
        assert "digits_float" in text
        assert "digits_int8" in text
        assert "tf2onnx is not compared" in text
        assert f"tflite2onnx is not compared: it is not installed in {FALSE_COMMAND}" in text

    def test_picture_has_a_bar_in_our_color(self, example_run: tuple[Result, Path]) -> None:
        from matplotlib.image import imread

        image = imread(example_run[1] / "ratios.png")
        assert image.shape[0] > 200
        blue = np.abs(image[..., :3] - np.array([0, 0x72, 0xB2]) / 255).max(axis=-1) < 0.01
        assert blue.sum() > 1000

    def test_picture_without_matplotlib_is_refused_at_once(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        result = CliRunner().invoke(benchmark, [str(INT8), "--png", str(tmp_path / "x.png")])
        assert result.exit_code == 2
        assert "onnx-tflite-plugin[benchmark]" in result.output

    @pytest.mark.parametrize("peer_python", ["tf2onnx", "tf2onnx=", "else=python"])
    def test_peer_option_needs_a_known_name_and_a_path(self, peer_python: str) -> None:
        result = CliRunner().invoke(benchmark, [str(INT8), "--peer-python", peer_python])
        assert result.exit_code == 2
        assert "NAME=PATH" in result.output

    def test_interrupted_benchmark_is_resumed(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """The second model is interrupted; the next run of the commit continues there."""
        (tmp_path / "b.tflite").write_bytes(INT8.read_bytes())
        (tmp_path / "a.tflite").write_bytes(FLOAT.read_bytes())
        target, table = tmp_path / "rows.json", tmp_path / "rows.md"
        arguments = [str(tmp_path), "--rounds", "1", "--json", str(target), "--markdown", str(table)]
        arguments += [f"--peer-python={name}={FALSE_COMMAND}" for name in COMMANDS]
        measured_names: list[str] = []

        def measure(source: Path, name: str, *_: Any) -> Row:
            measured_names.append(name)
            if measured_names == ["a", "b"]:
                raise KeyboardInterrupt
            return Row(
                name, "float", Spread(0.1, 0.2, 0.3), (Outcome("ours", Spread(1, 2, 3), graph=Graph(1, 2, 3, 4)),)
            )

        monkeypatch.setattr(main, "bench_in_process", measure)
        monkeypatch.setattr(record, "commit", lambda: "commit 1234567890")
        assert CliRunner().invoke(benchmark, arguments).exit_code == 1
        assert [row["model"] for row in json.loads(target.read_text())["models"]] == ["a"]
        assert "| a | float |" in table.read_text()
        assert CliRunner().invoke(benchmark, arguments).exit_code == 0
        assert measured_names == ["a", "b", "b"]
        rows = json.loads(target.read_text())["models"]
        assert [row["model"] for row in rows] == ["a", "b"]
        assert {**rows[0], "model": "b", "digest": ""} == {**rows[1], "digest": ""}
        (tmp_path / "a.tflite").write_bytes(INT8.read_bytes())
        CliRunner().invoke(benchmark, arguments)
        assert measured_names == ["a", "b", "b", "a"]
        CliRunner().invoke(benchmark, [*arguments, "--rounds", "2"])
        assert measured_names == ["a", "b", "b", "a", "a", "b"]

    def test_models_are_measured_again_if_the_checkout_is_modified(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        for commit in ("commit 1234567890", "commit 1234567890 with changes", "no commit"):
            (tmp_path / "rows.json").write_text(record.format_results([Row("a", digest="d")], [commit]))
            assert bool(record.resume(tmp_path / "rows.json", [commit], {"a": "d"})) is (commit[-1] == "0")

    def test_models_are_named_by_the_shortest_unique_path_suffix(self, tmp_path: Path) -> None:
        for place in ("a/one/net.tflite", "a/two/net.tflite", "a/two/other.tflite", "a/two/notes.txt"):
            (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / place).touch()
        empty = tmp_path / "empty"
        empty.mkdir()
        assert list(models_by_name([tmp_path / "a", tmp_path / "a" / "one" / "net.tflite"])) == [
            "one/net",
            "two/net",
            "other",
        ]
        with pytest.raises(UsageProblem, match=r"no \.tflite file"):
            models_by_name([tmp_path / "a", empty])
        with pytest.raises(UsageProblem, match="no such file"):
            models_by_name([tmp_path / "missing.tflite"])


def unary(code: str) -> bytes:
    net = Net()
    net.output(net.call(code, [tensor(1, 2, 3, 5)], tensor(1, 2, 3, 5)))
    return net.build()


@dataclass(frozen=True)
class Written:
    """A converter that writes a given model."""

    model: bytes
    name: str = "written"
    version: str = "1"

    def convert(self, source: Path, target: Path) -> None:
        target.write_bytes(self.model)


@dataclass(frozen=True)
class Fatal:
    """A converter that crashes the process."""

    name: str = "fatal"
    version: str = "1"

    def convert(self, source: Path, target: Path) -> None:
        os._exit(3)


def crash(*_: Any) -> Row:
    os._exit(3)


class TestRow:
    def test_refused_model_has_a_reason(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(otp, "convert", partial(otp.convert, block=("onnx-tflite-plugin",)))
        row = bench(FLOAT, "digits", [Ours()], 2)
        (ours,) = row.outcomes
        assert ours.problem.startswith("refused: CONV_2D")
        assert "more" in ours.problem
        assert ours.ratio is None
        assert row.seconds is not None

    def test_model_that_litert_cannot_run_has_a_reason(self, tmp_path: Path) -> None:
        (tmp_path / "bad.tflite").write_bytes(b"not a model")
        row = bench(tmp_path / "bad.tflite", "bad", [Ours()], 2)
        assert row.problem.startswith("does not run: ")
        assert row.outcomes == ()

    def test_crash_affects_one_row_only(self) -> None:
        row = bench_in_process(FLOAT, "digits", [Fatal(), Ours()], 2)
        assert row.seconds is not None
        fatal, ours = row.outcomes
        assert (fatal.converter, fatal.problem) == ("fatal", "crashes: the process of the converter has ended")
        assert ours.ratio is not None

    def test_crash_of_litert_is_attributed_to_litert(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(model, "bench", crash)
        row = bench_in_process(FLOAT, "digits", [Ours()], 2)
        assert row.problem.startswith("crashes: ")
        assert row.outcomes == ()

    def test_wrong_results_are_reported(self, tmp_path: Path) -> None:
        (tmp_path / "abs.tflite").write_bytes(unary("ABS"))
        negated = self.model("Neg", [1, 2, 3, 5])
        (outcome,) = bench(tmp_path / "abs.tflite", "abs", [Written(negated)], 2).outcomes
        assert not outcome.within_tolerance
        assert outcome.error.endswith("of range")

    @pytest.mark.parametrize(
        ("unit", "distance", "mean", "wrong"),
        [
            ("step", 1, 1.0, False),
            ("step", 9, 0.02, False),
            ("step", 9, 1.5, True),
            ("range", 0.004, 0.001, False),
            ("range", 0.2, 0.02, True),
            ("value", 3, 0.001, True),
        ],
    )
    def test_rounding_differences_are_tolerated(self, unit: Any, distance: float, mean: float, wrong: bool) -> None:
        comparison = Comparison("y", unit, distance, 0.1, 1 if unit == "step" else 1e-3, mean_error=mean)
        assert model.is_wrong(comparison) is wrong

    def test_error_equals_that_of_verify(self, tmp_path: Path) -> None:
        """A sigmoid far below zero: the rounding error is 1,000 times the range."""
        net = Net()
        shifted = net.call("ADD", [tensor(1, 7), constant(np.full((1, 7), -60, np.float32))], tensor(1, 7))
        net.output(net.call("LOGISTIC", [shifted], tensor(1, 7)))
        (tmp_path / "sigmoid.tflite").write_bytes(net.build())
        (outcome,) = bench(tmp_path / "sigmoid.tflite", "sigmoid", [Ours()], 2).outcomes
        verification = verify(net.build(), otp.convert(net.build()).proto)
        assert verification.ok
        share = float(outcome.error.removesuffix(" of range"))
        assert share == pytest.approx(max(comparison.max_error for comparison in verification.comparisons), rel=0.1)
        assert share > 1e-3

    def test_different_number_of_inputs_is_a_different_interface(self, tmp_path: Path) -> None:
        net = Net()
        net.output(net.call("ADD", [tensor(1, 2), tensor(1, 2)], tensor(1, 2)))
        (tmp_path / "add.tflite").write_bytes(net.build())
        (outcome,) = bench(tmp_path / "add.tflite", "add", [Written(self.model("Abs", [1, 2]))], 2).outcomes
        assert outcome.problem.startswith("has another interface: ")

    @pytest.mark.parametrize("wrong", [False, True])
    def test_channels_first_and_float_outputs_are_converted_back(self, tmp_path: Path, wrong: bool) -> None:
        """Some converters give quantized models float inputs and outputs, channels first."""
        net, shape = Net(), (1, 3, 5, 7)
        stored = np.random.default_rng(1).integers(-128, 128, shape).astype(np.int8)
        operands: list[Spec | Any] = [tensor(*shape, dtype="int8"), constant(stored, scale=0.047, zero_point=-5)]
        net.output(net.call("ADD", operands, tensor(*shape, dtype="int8", scale=0.1)))
        (tmp_path / "add.tflite").write_bytes(net.build())
        floats = ((stored.astype(np.float32) + 5) * np.float32(0.047)).transpose(0, 3, 1, 2)
        converted = self.model("Add", [1, 7, 3, 5], floats[..., ::-1].copy() if wrong else floats)
        (outcome,) = bench(tmp_path / "add.tflite", "add", [Written(converted)], 2).outcomes
        assert outcome.ratio is not None
        assert outcome.within_tolerance is not wrong
        assert (outcome.error in ("equal", "1 step")) is not wrong

    @staticmethod
    def model(op: str, shape: list[int], *constants: Any) -> bytes:
        interface = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("in", "out")]
        initializers = [numpy_helper.from_array(value, f"c{k}") for k, value in enumerate(constants)]
        node = helper.make_node(op, ["in", *(value.name for value in initializers)], ["out"])
        graph = helper.make_graph([node], "g", interface[:1], interface[1:], initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
        return bytes(model.SerializeToString())


class TestPeers:
    @pytest.fixture
    def fake(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
        """Install a fake tf2onnx with a given behavior."""

        def install(body: str) -> None:
            package, info = tmp_path / "tf2onnx", tmp_path / "tf2onnx-7.5.dist-info"
            package.mkdir()
            info.mkdir()
            (package / "__init__.py").touch()
            (package / "convert.py").write_text("\n".join(line.strip() for line in (FAKE + body).splitlines()))
            (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tf2onnx\nVersion: 7.5\n")
            monkeypatch.setenv("PYTHONPATH", str(tmp_path))

        return install

    def test_installed_peer_is_measured(self, fake: Callable[[str], None]) -> None:
        fake(
            "import onnx_tflite_plugin as otp\nassert sys.argv[-2:] == ['--opset', '18']\notp.convert(source).save(target)"
        )
        (peer,) = [peer for peer in find_peers({"tflite2onnx": FALSE_COMMAND}) if isinstance(peer, Peer)]
        assert (peer.name, peer.version) == ("tf2onnx", "7.5")
        _, outcome = bench(FLOAT, "digits", [Ours(), peer], 2).outcomes
        assert outcome.ratio is not None
        assert math.isfinite(outcome.ratio.median)
        assert outcome.within_tolerance

    def test_each_file_is_converted_once(self, fake: Callable[[str], None], tmp_path: Path) -> None:
        fake("Path(target).write_bytes(source.encode())")
        peer = Peer("tf2onnx", "7.5", sys.executable, cache=tmp_path / "cache")
        for source in ("a", "b", "a"):
            (tmp_path / source).write_text(source)
            peer.convert(tmp_path / source, tmp_path / "out.onnx")
        shutil.rmtree(tmp_path / "tf2onnx")
        peer.convert(tmp_path / "b", tmp_path / "out.onnx")
        assert (tmp_path / "out.onnx").read_text() == str(tmp_path / "b")
        with pytest.raises(NotConverted, match="No module named"):
            replace(peer, version="7.6").convert(tmp_path / "b", tmp_path / "out.onnx")

    def test_failure_is_cached_for_its_timeout(self, fake: Callable[[str], None], tmp_path: Path) -> None:
        fake("sys.exit(0)")
        peer = Peer("tf2onnx", "7.5", sys.executable, timeout=10, cache=tmp_path / "cache")
        (tmp_path / "a").write_text("a")
        for body in ("exit status 0", "exit status 0"):
            with pytest.raises(NotConverted, match=body):
                peer.convert(tmp_path / "a", tmp_path / "out.onnx")
            shutil.rmtree(tmp_path / "tf2onnx", ignore_errors=True)
        with pytest.raises(NotConverted, match="No module named"):
            replace(peer, timeout=20).convert(tmp_path / "a", tmp_path / "out.onnx")

    @pytest.mark.parametrize(
        ("body", "problem"),
        [
            ("raise ValueError('no such operator')", "fails: ValueError: no such operator"),
            ("sys.exit(0)", "fails: nothing was written, exit status 0"),
            ("time.sleep(60)", "fails: not finished after 1 s"),
            ("Path(target).write_bytes(b'no model')", "does not load: "),
        ],
        ids=["raises", "writes nothing", "takes too long", "writes nonsense"],
    )
    def test_failures_of_peers_are_reported(self, fake: Callable[[str], None], body: str, problem: str) -> None:
        fake(body)
        row = bench(FLOAT, "digits", [Ours(), Peer("tf2onnx", "7.5", sys.executable, timeout=1)], 2)
        ours, peer = row.outcomes
        assert peer.problem.startswith(problem)
        assert ours.ratio is not None
