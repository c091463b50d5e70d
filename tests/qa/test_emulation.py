"""Trials on other processors fail where they should: where results differ, and where they would prove nothing."""

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

from conformance.cases import builtin
from conformance.lstms import STEP
from conformance.models import constant, in_isolation, random_array, tensor
from onnx_tflite_plugin.source import read
from tests.qa.emulation import __main__ as command
from tests.qa.emulation import extremes
from tests.qa.emulation.catalogue import CASES, Entry, ends, with_outputs
from tests.qa.emulation.emulation import Emulator, NotInstalled, here
from tests.qa.emulation.machines import CORTEX_A72, CORTEX_A76, EMULATED, HASWELL, NEHALEM
from tests.qa.emulation.native import MASKS, Unsupported, mask_processor
from tests.qa.emulation.trials import Models, Outcome, Report, convert_entries, try_on

GOOD = Outcome("a", planted=False, within=True, text="equal")
BAD = Outcome("b", planted=False, within=False, text="max 15 steps")
SEEN = Outcome("c (int8)", planted=True, within=False, text="max 123 steps")
UNSEEN = Outcome("d (int8)", planted=True, within=True, text="equal")


class TestReport:
    def test_models_within_the_band_and_overflows_that_are_seen_are_no_problem(self) -> None:
        assert Report(HASWELL, (GOOD, SEEN)).problems == []

    def test_a_model_outside_the_band_is_named_with_its_distance(self) -> None:
        assert Report(HASWELL, (GOOD, BAD, SEEN)).problems == ["b: max 15 steps"]

    def test_an_overflow_that_is_not_seen_fails_the_trial(self) -> None:
        (problem,) = Report(HASWELL, (GOOD, SEEN, UNSEEN)).problems
        assert problem.startswith("d (int8)")
        assert "proves nothing" in problem

    def test_a_trial_without_planted_overflows_fails_where_products_overflow_and_only_there(self) -> None:
        for processor in EMULATED:
            assert bool(Report(processor, (GOOD,)).problems) == (processor is not NEHALEM)

    def test_what_the_processor_is_not_fails_the_trial(self) -> None:
        assert Report(NEHALEM, (GOOD,), mistaken="emulated as a processor with AVX").problems


class TestProcessor:
    def test_features_seen_from_inside_must_fit_the_name(self) -> None:
        assert HASWELL.mistaken(["SSE42", "AVX2"]) == ""
        assert HASWELL.mistaken(["AVX2", "AVX512F"]) == "with AVX512F"
        assert CORTEX_A76.mistaken(["ASIMD"]) == "without ASIMDDP"
        assert CORTEX_A72.mistaken(["ASIMDDP"]) == "without ASIMD and with ASIMDDP"

    def test_cpuinfo_tells_the_part_and_dotprod_where_qemu_has_it(self) -> None:
        for processor, part in ((CORTEX_A72, "0xd08"), (CORTEX_A76, "0xd0c")):
            fields = dict(line.split("\t: ") for line in processor.cpuinfo.strip().splitlines())
            assert fields["CPU part"] == part
            assert ("asimddp" in fields["Features"].split()) == ("ASIMDDP" in processor.has)
        assert processor.cpuinfo.endswith("\n\n")

    def test_each_arm_processor_has_a_cpuinfo_of_its_own_beside_the_shared_root(self, tmp_path: Path) -> None:
        root = tmp_path / "root"
        (root / "usr").mkdir(parents=True)
        for processor in (CORTEX_A72, CORTEX_A76):
            folder = Emulator(tmp_path).sysroot(processor, root)
            assert (folder / "proc/cpuinfo").read_text() == processor.cpuinfo
            assert (folder / "usr").resolve() == root / "usr"


class TestCatalogue:
    def test_every_kind_of_overflow_is_planted(self) -> None:
        planted = {overflow for entry in ends() for overflow in entry.overflows}
        assert planted == {processor.overflow for processor in EMULATED} - {""}

    def test_conformance_cases_are_there_and_convert(self) -> None:
        known = {case.id: case for case in builtin()}
        assert [name for name in CASES if name not in known or not known[name].counts] == []

    def test_weights_have_pairs_that_overflow_both_ways_and_minus_128(self) -> None:
        pairs = extremes.ends(10, 16).astype(int).reshape(10, 8, 2).sum(axis=2)
        assert pairs.max() == 254
        assert pairs.min() == -256

    def test_activations_reach_both_ends_of_their_dtype(self) -> None:
        for dtype in ("int8", "uint8", "int16"):
            runs = extremes.activations((2, 3, 16), dtype)
            low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
            assert [(run.min(), run.max()) for run in runs[:4]] == [(high, high), (low, low), (low, high), (low, high)]
            assert {run.dtype.name for run in runs} == {dtype}

    def test_a_further_output_is_the_last_result_of_its_operator(self) -> None:
        x = tensor(2, 5, dtype="int8")
        case = in_isolation("LOGISTIC", "int8", [x], replace(x, scale=1 / 256, zero_point=-128))
        data = with_outputs(case.build(), ["LOGISTIC"])
        assert [t.index for t in read(data).main.outputs] == [t.index for t in read(case.build()).main.outputs] * 2


@pytest.fixture(scope="module")
def small() -> Models:
    """A product that overflows, and an LSTM whose states go from run to run."""
    dense = Entry(extremes.dense("int8", (3, 32), 15, least=-128), ("pairs", "-128"))
    cell = Entry(extremes.Cell(op=STEP).case_with_inputs("float32 on int8"))
    return convert_entries([dense, cell])


class TestTrial:
    def test_a_processor_gets_every_model_and_the_forms_that_overflow_on_it(self, small: Models) -> None:
        names = {processor.name: [one.planted for one in small.on(processor)] for processor in EMULATED}
        assert names["Haswell"] == names["cortex-a72"] == [False, True, False]
        assert names["Nehalem"] == names["cortex-a76"] == [False, False]

    def test_a_part_of_the_models_keeps_a_planted_overflow_of_each_kind(self) -> None:
        models = convert_entries(ends(), "in_a_loop")
        assert all("in_a_loop" in one.name for one in models.converted if not one.planted)
        for processor in EMULATED:
            assert any(one.planted for one in models.on(processor)) == bool(processor.overflow)

    def test_the_worker_gives_what_a_session_here_gives_states_included(self, small: Models, tmp_path: Path) -> None:
        own = replace(NEHALEM, has=(), lacks=())
        report = try_on(own, here(), small, tmp_path / "out")
        assert report.mistaken == ""
        assert [(one.name, one.planted) for one in report.outcomes] == [(m.name, m.planted) for m in small.on(own)]
        for model, outputs in zip(small.on(own), sorted((tmp_path / "out").glob("[0-9].npz")), strict=True):
            (there,) = model.compare(outputs)
            (here_,) = model.judge(model.here)
            assert (there.distance, there.mean) == (here_.distance, here_.mean)

    def test_results_of_another_model_are_outside_the_band(self, small: Models, tmp_path: Path) -> None:
        """The other model has the same names and shapes, with every integer shifted."""
        model = small.converted[0]
        shifted = [[np.clip(array.astype(int) + 2, -128, 127).astype(np.int8) for array in run] for run in model.here]
        assert all(one.ok for one in model.judge(model.here))
        assert not any(one.ok for one in model.judge(shifted))

    def test_a_worker_that_dies_is_a_problem_with_the_model_at_which_it_did(
        self, small: Models, tmp_path: Path
    ) -> None:
        script = tmp_path / "dies.py"
        started = json.dumps({"features": ["SSE42"]}) + "\n" + json.dumps({"started": "1"})
        script.write_text(f"import os\nprint({started!r}, flush=True)\nos.abort()")
        own = here()
        report = try_on(NEHALEM, replace(own, start=(*own.start, str(script))), small, tmp_path / "out")
        assert small.on(NEHALEM)[1].name in report.mistaken
        assert len(report.problems) == 1 + len(small.on(NEHALEM))

    def test_results_that_hardly_vary_prove_nothing(self) -> None:
        zeros = constant(np.zeros((5, 3)), "float32")
        case = in_isolation("FULLY_CONNECTED", "zeros", [tensor(2, 3), zeros, constant(random_array(5))], tensor(2, 5))
        flat = in_isolation(
            "FULLY_CONNECTED", "zeros", [tensor(2, 3), zeros, constant(np.zeros(5), "float32")], tensor(2, 5)
        )
        assert convert_entries([Entry(case)]).problems == ()
        assert "proves nothing" in convert_entries([Entry(flat)]).problems[0]

    def test_a_model_that_is_refused_is_a_problem(self) -> None:
        refused = next(case for case in builtin() if case.refused)
        (problem,) = convert_entries([Entry(refused)]).problems
        assert refused.refused in problem


class TestCommand:
    @pytest.mark.parametrize(("ci", "status"), [("", 0), ("true", command.DID_NOT_RUN)])
    def test_where_emulation_cannot_be_installed_it_says_so_and_fails_in_ci(
        self, ci: str, status: int, small: Models, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def missing(*_: object) -> None:
            raise NotInstalled("there is no apt")

        monkeypatch.setenv("CI", ci)
        monkeypatch.setattr(command, "networks", lambda folder: folder)
        monkeypatch.setattr(command, "catalogue", lambda _: ())
        monkeypatch.setattr(command, "convert_entries", lambda *_: small)
        monkeypatch.setattr(Emulator, "command", missing)
        result = CliRunner().invoke(command.main, ["--on", "Haswell"])
        assert result.exit_code == status
        assert "DID NOT RUN Haswell: there is no apt" in result.output
        assert "within LiteRT's band" not in result.output

    def test_a_command_to_run_masked_needs_a_mask(self) -> None:
        assert CliRunner().invoke(command.main, ["--", "true"]).exit_code == 2


# --- instructions hidden on this processor ----------------------------------------------------

SEEN_FROM = """
import ctypes, os, sys
def seen():
    out = (ctypes.c_uint32 * 4)()
    ctypes.CDLL(None).cpuid_as_seen(7, 0, out)
    return f"{out[1] >> 5 & 1}{out[1] >> 16 & 1}{out[2] >> 11 & 1}"  # AVX2, AVX512F, AVX512_VNNI
"""


@pytest.fixture(scope="module")
def mask_variables(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Mapping[str, str]]:
    """The variables of each mask."""
    folder = tmp_path_factory.mktemp("native")
    try:
        return {mask: mask_processor(mask, folder) for mask in MASKS}
    except Unsupported as reason:
        pytest.skip(str(reason))


def under(variables: Mapping[str, str], code: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)


class TestHidden:
    @pytest.mark.parametrize(("mask", "avx2", "more"), [("avx2", "1", "00"), ("sse", "0", "00")])
    def test_main_program_threads_forks_and_what_is_executed_see_the_same(
        self, mask: str, avx2: str, more: str, mask_variables: Mapping[str, Mapping[str, str]]
    ) -> None:
        code = f"""{SEEN_FROM}
import subprocess, threading
print(seen(), flush=True)
thread = threading.Thread(target=lambda: print(seen(), flush=True))
thread.start(); thread.join()
if os.fork() == 0:
    print(seen(), flush=True)
    os._exit(0)
os.wait()
subprocess.run([sys.executable, "-c", {SEEN_FROM + "print(seen())"!r}])
"""
        ran = under(mask_variables[mask], code)
        assert (ran.returncode, ran.stderr) == (0, "")
        assert set(ran.stdout.split()) == {avx2 + more}
        assert len(ran.stdout.split()) == 4

    def test_a_handler_of_segmentation_faults_set_later_gets_its_own_and_not_these(
        self, mask_variables: Mapping[str, Mapping[str, str]]
    ) -> None:
        code = f"{SEEN_FROM}import faulthandler\nfaulthandler.enable()\nseen()\nctypes.string_at(0)"
        ran = under(mask_variables["avx2"], code)
        assert ran.returncode == -signal.SIGSEGV
        assert "Segmentation fault" in ran.stderr
        assert "string_at" in ran.stderr

    def test_a_segmentation_fault_without_a_handler_still_ends_the_program(
        self, mask_variables: Mapping[str, Mapping[str, str]]
    ) -> None:
        for code in ("import ctypes; ctypes.string_at(0)", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"):
            assert under(mask_variables["avx2"], code).returncode == -signal.SIGSEGV

    def test_python_s_own_handler_is_called_and_given_back(
        self, mask_variables: Mapping[str, Mapping[str, str]]
    ) -> None:
        code = """import os, signal
before = signal.signal(signal.SIGSEGV, lambda *_: print("handled"))
os.kill(os.getpid(), signal.SIGSEGV)
print(before == signal.SIG_DFL, signal.signal(signal.SIGSEGV, before) is not None)"""
        assert under(mask_variables["avx2"], code).stdout.split() == ["handled", "True", "True"]

    def test_an_overflow_is_seen_here_as_on_a_processor_without_vnni(
        self, small: Models, mask_variables: Mapping[str, Mapping[str, str]], tmp_path: Path
    ) -> None:
        report = try_on(MASKS["avx2"], here(mask_variables["avx2"]), small, tmp_path / "out")
        assert report.mistaken == ""
        assert [one.within for one in report.outcomes if one.planted] == [False]
        assert next(one for one in report.outcomes if one.planted).text.startswith("max 1")

    def test_without_avx_every_form_is_exact(
        self, small: Models, mask_variables: Mapping[str, Mapping[str, str]], tmp_path: Path
    ) -> None:
        everything = replace(MASKS["sse"], overflow="pairs")
        report = try_on(everything, here(mask_variables["sse"]), small, tmp_path / "out")
        assert (report.mistaken, [one.within for one in report.outcomes]) == ("", [True] * 3)
