"""Trials on emulated processors fail for wrong results and missed overflows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from conformance.cases import builtin_cases
from conformance.lstms import STEP
from conformance.models import constant, in_isolation, random_array, tensor
from onnx_tflite_plugin.source import read
from tests.qa.emulation import __main__ as command
from tests.qa.emulation import extremes
from tests.qa.emulation.catalogue import CASES, Entry, extreme_products, with_outputs
from tests.qa.emulation.emulation import Emulator, NotInstalled, local_command
from tests.qa.emulation.machines import CORTEX_A72, CORTEX_A76, EMULATED, HASWELL, NEHALEM
from tests.qa.emulation.native import MASKS, Unsupported, mask_processor
from tests.qa.emulation.trials import Models, Outcome, Report, convert_entries, run_on

EQUAL = Outcome("a", planted=False, within_tolerance=True, text="equal")
BEYOND = Outcome("b", planted=False, within_tolerance=False, text="max 15 steps")
DETECTED = Outcome("c (int8)", planted=True, within_tolerance=False, text="max 123 steps")
UNDETECTED = Outcome("d (int8)", planted=True, within_tolerance=True, text="equal")


class TestReport:
    def test_results_within_tolerance_and_detected_overflows_pass(self) -> None:
        assert Report(HASWELL, (EQUAL, DETECTED)).problems == []

    def test_model_beyond_tolerance_is_reported_with_its_error(self) -> None:
        assert Report(HASWELL, (EQUAL, BEYOND, DETECTED)).problems == ["b: max 15 steps"]

    def test_undetected_planted_overflow_fails(self) -> None:
        (problem,) = Report(HASWELL, (EQUAL, DETECTED, UNDETECTED)).problems
        assert problem.startswith("d (int8)")
        assert "proves nothing" in problem

    def test_processors_that_overflow_need_planted_overflows(self) -> None:
        for processor in EMULATED:
            assert bool(Report(processor, (EQUAL,)).problems) == (processor is not NEHALEM)

    def test_wrong_processor_features_fail_the_trial(self) -> None:
        assert Report(NEHALEM, (EQUAL,), failure="emulated as a processor with AVX").problems


class TestProcessor:
    def test_detected_features_must_match_the_processor(self) -> None:
        assert HASWELL.feature_mismatch(["SSE42", "AVX2"]) == ""
        assert HASWELL.feature_mismatch(["AVX2", "AVX512F"]) == "with AVX512F"
        assert CORTEX_A76.feature_mismatch(["ASIMD"]) == "without ASIMDDP"
        assert CORTEX_A72.feature_mismatch(["ASIMDDP"]) == "without ASIMD and with ASIMDDP"

    def test_cpuinfo_has_part_number_and_dotprod_feature(self) -> None:
        for processor, part_number in ((CORTEX_A72, "0xd08"), (CORTEX_A76, "0xd0c")):
            fields = dict(line.split("\t: ") for line in processor.cpuinfo.strip().splitlines())
            assert fields["CPU part"] == part_number
            assert ("asimddp" in fields["Features"].split()) == ("ASIMDDP" in processor.has)
        assert processor.cpuinfo.endswith("\n\n")

    def test_each_arm_processor_has_its_cpuinfo_in_a_shared_root(self, tmp_path: Path) -> None:
        root_folder = tmp_path / "root"
        (root_folder / "usr").mkdir(parents=True)
        for processor in (CORTEX_A72, CORTEX_A76):
            folder = Emulator(tmp_path).sysroot(processor, root_folder)
            assert (folder / "proc/cpuinfo").read_text() == processor.cpuinfo
            assert (folder / "usr").resolve() == root_folder / "usr"


class TestCatalogue:
    def test_every_kind_of_overflow_is_planted(self) -> None:
        planted = {overflow for entry in extreme_products() for overflow in entry.overflows}
        assert planted == {processor.overflow for processor in EMULATED} - {""}

    def test_listed_conformance_cases_exist_and_convert(self) -> None:
        known = {case.id: case for case in builtin_cases()}
        assert [name for name in CASES if name not in known or not known[name].expects_success] == []

    def test_weights_include_overflowing_pairs_and_minus_128(self) -> None:
        pairs = extremes.extreme_weights(10, 16).astype(int).reshape(10, 8, 2).sum(axis=2)
        assert pairs.max() == 254
        assert pairs.min() == -256

    def test_activations_reach_both_ends_of_their_dtype(self) -> None:
        for dtype in ("int8", "uint8", "int16"):
            runs = extremes.activations((2, 3, 16), dtype)
            low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
            assert [(run.min(), run.max()) for run in runs[:4]] == [(high, high), (low, low), (low, high), (low, high)]
            assert {run.dtype.name for run in runs} == {dtype}

    def test_added_output_is_the_last_result_of_its_operator(self) -> None:
        x = tensor(2, 5, dtype="int8")
        case = in_isolation("LOGISTIC", "int8", [x], replace(x, scale=1 / 256, zero_point=-128))
        data = with_outputs(case.build(), ["LOGISTIC"])
        assert [t.index for t in read(data).main.outputs] == [t.index for t in read(case.build()).main.outputs] * 2


@pytest.fixture(scope="module")
def two_models() -> Models:
    """Return a product that overflows, and a stateful LSTM."""
    dense = Entry(extremes.dense("int8", (3, 32), 15, min_weight=-128), ("pairs", "-128"))
    cell = Entry(extremes.Cell(op=STEP).case_with_inputs("float32 on int8"))
    return convert_entries([dense, cell])


class TestTrial:
    def test_processor_gets_all_models_and_its_overflowing_forms(self, two_models: Models) -> None:
        names = {processor.name: [model.planted for model in two_models.on(processor)] for processor in EMULATED}
        assert names["Haswell"] == names["cortex-a72"] == [False, True, False]
        assert names["Nehalem"] == names["cortex-a76"] == [False, False]

    def test_selection_of_models_keeps_planted_overflows(self) -> None:
        models = convert_entries(extreme_products(), "in_a_loop")
        assert all("in_a_loop" in model.name for model in models.converted if not model.planted)
        for processor in EMULATED:
            assert any(model.planted for model in models.on(processor)) == bool(processor.overflow)

    def test_worker_equals_a_local_session_including_states(self, two_models: Models, tmp_path: Path) -> None:
        processor = replace(NEHALEM, has=(), lacks=())
        report = run_on(processor, local_command(), two_models, tmp_path / "out")
        assert report.failure == ""
        assert [(model.name, model.planted) for model in report.outcomes] == [
            (m.name, m.planted) for m in two_models.on(processor)
        ]
        for model, outputs in zip(two_models.on(processor), sorted((tmp_path / "out").glob("[0-9].npz")), strict=True):
            (worker_comparison,) = model.compare(outputs)
            (local_comparison,) = model.compare_results(model.local_results)
            assert (worker_comparison.max_error, worker_comparison.mean_error) == (
                local_comparison.max_error,
                local_comparison.mean_error,
            )

    def test_results_of_another_model_are_beyond_tolerance(self, two_models: Models, tmp_path: Path) -> None:
        """The other model has the same names and shapes, with every integer shifted."""
        model = two_models.converted[0]
        shifted = [
            [np.clip(array.astype(int) + 2, -128, 127).astype(np.int8) for array in run] for run in model.local_results
        ]
        assert all(model.ok for model in model.compare_results(model.local_results))
        assert not any(model.ok for model in model.compare_results(shifted))

    def test_worker_crash_is_reported_with_its_model(self, two_models: Models, tmp_path: Path) -> None:
        script = tmp_path / "crash.py"
        started = json.dumps({"features": ["SSE42"]}) + "\n" + json.dumps({"started": "1"})
        script.write_text(f"import os\nprint({started!r}, flush=True)\nos.abort()")
        worker_command = local_command()
        report = run_on(
            NEHALEM, replace(worker_command, start=(*worker_command.start, str(script))), two_models, tmp_path / "out"
        )
        assert two_models.on(NEHALEM)[1].name in report.failure
        assert len(report.problems) == 1 + len(two_models.on(NEHALEM))

    def test_nearly_constant_results_are_a_problem(self) -> None:
        zeros = constant(np.zeros((5, 3)), "float32")
        case = in_isolation("FULLY_CONNECTED", "zeros", [tensor(2, 3), zeros, constant(random_array(5))], tensor(2, 5))
        flat = in_isolation(
            "FULLY_CONNECTED", "zeros", [tensor(2, 3), zeros, constant(np.zeros(5), "float32")], tensor(2, 5)
        )
        assert convert_entries([Entry(case)]).problems == ()
        assert "proves nothing" in convert_entries([Entry(flat)]).problems[0]

    def test_refused_model_is_a_problem(self) -> None:
        refused = next(case for case in builtin_cases() if case.refusal)
        (problem,) = convert_entries([Entry(refused)]).problems
        assert refused.refusal in problem


class TestCommand:
    @pytest.mark.parametrize(("ci", "status"), [("", 0), ("true", command.DID_NOT_RUN)])
    def test_missing_emulation_is_reported_and_fails_in_ci(
        self, ci: str, status: int, two_models: Models, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object) -> None:
            raise NotInstalled("there is no apt")

        monkeypatch.setenv("CI", ci)
        monkeypatch.setattr(command, "networks", lambda folder: folder)
        monkeypatch.setattr(command, "catalogue", lambda _: ())
        monkeypatch.setattr(command, "convert_entries", lambda *_: two_models)
        monkeypatch.setattr(Emulator, "command", fail)
        result = CliRunner().invoke(command.main, ["--on", "Haswell"])
        assert result.exit_code == status
        assert "DID NOT RUN Haswell: there is no apt" in result.output
        assert "within the tolerance" not in result.output

    def test_masked_command_needs_a_mask(self) -> None:
        assert CliRunner().invoke(command.main, ["--", "true"]).exit_code == 2


# --- instructions hidden on this processor ----------------------------------------------------

CPUID_CODE = """
import ctypes, os, sys
def seen():
    out = (ctypes.c_uint32 * 4)()
    ctypes.CDLL(None).cpuid_as_seen(7, 0, out)
    return f"{out[1] >> 5 & 1}{out[1] >> 16 & 1}{out[2] >> 11 & 1}"  # AVX2, AVX512F, AVX512_VNNI
"""


@pytest.fixture(scope="module")
def mask_variables(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Mapping[str, str]]:
    """Return the environment variables of each mask."""
    folder = tmp_path_factory.mktemp("native")
    try:
        return {mask: mask_processor(mask, folder) for mask in MASKS}
    except Unsupported as reason:
        pytest.skip(str(reason))


def run_python(variables: Mapping[str, str], code: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)


class TestMaskedProcessor:
    @pytest.mark.parametrize(("mask", "avx2", "avx512"), [("avx2", "1", "00"), ("sse", "0", "00")])
    def test_mask_applies_to_threads_forks_and_executed_programs(
        self, mask: str, avx2: str, avx512: str, mask_variables: Mapping[str, Mapping[str, str]]
    ) -> None:
        code = f"""{CPUID_CODE}
import subprocess, threading
print(seen(), flush=True)
thread = threading.Thread(target=lambda: print(seen(), flush=True))
thread.start(); thread.join()
if os.fork() == 0:
    print(seen(), flush=True)
    os._exit(0)
os.wait()
subprocess.run([sys.executable, "-c", {CPUID_CODE + "print(seen())"!r}])
"""
        completed = run_python(mask_variables[mask], code)
        assert (completed.returncode, completed.stderr) == (0, "")
        assert set(completed.stdout.split()) == {avx2 + avx512}
        assert len(completed.stdout.split()) == 4

    def test_later_sigsegv_handler_gets_only_real_faults(self, mask_variables: Mapping[str, Mapping[str, str]]) -> None:
        code = f"{CPUID_CODE}import faulthandler\nfaulthandler.enable()\nseen()\nctypes.string_at(0)"
        completed = run_python(mask_variables["avx2"], code)
        assert completed.returncode == -signal.SIGSEGV
        assert "Segmentation fault" in completed.stderr
        assert "string_at" in completed.stderr

    def test_real_segmentation_fault_still_ends_the_program(
        self, mask_variables: Mapping[str, Mapping[str, str]]
    ) -> None:
        for code in ("import ctypes; ctypes.string_at(0)", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"):
            assert run_python(mask_variables["avx2"], code).returncode == -signal.SIGSEGV

    def test_python_sigsegv_handler_is_called_and_restored(
        self, mask_variables: Mapping[str, Mapping[str, str]]
    ) -> None:
        code = """import os, signal
before = signal.signal(signal.SIGSEGV, lambda *_: print("handled"))
os.kill(os.getpid(), signal.SIGSEGV)
print(before == signal.SIG_DFL, signal.signal(signal.SIGSEGV, before) is not None)"""
        assert run_python(mask_variables["avx2"], code).stdout.split() == ["handled", "True", "True"]

    def test_masked_processor_overflows_like_one_without_vnni(
        self, two_models: Models, mask_variables: Mapping[str, Mapping[str, str]], tmp_path: Path
    ) -> None:
        report = run_on(MASKS["avx2"], local_command(mask_variables["avx2"]), two_models, tmp_path / "out")
        assert report.failure == ""
        assert [outcome.within_tolerance for outcome in report.outcomes if outcome.planted] == [False]
        assert next(outcome for outcome in report.outcomes if outcome.planted).text.startswith("max 1")

    def test_all_weights_dtypes_are_exact_without_avx(
        self, two_models: Models, mask_variables: Mapping[str, Mapping[str, str]], tmp_path: Path
    ) -> None:
        processor = replace(MASKS["sse"], overflow="pairs")
        report = run_on(processor, local_command(mask_variables["sse"]), two_models, tmp_path / "out")
        assert (report.failure, [outcome.within_tolerance for outcome in report.outcomes]) == ("", [True] * 3)
