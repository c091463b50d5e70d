"""Models of a source: a file, a folder, a bundle, or the signatures of a model."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from onnx_tflite_plugin.cli.command_files import CommandFiles
from onnx_tflite_plugin.cli.failures import UsageProblem
from onnx_tflite_plugin.cli.paths import bundle_of, check_readable
from onnx_tflite_plugin.errors import InvalidModel
from onnx_tflite_plugin.files import describe_wrong_suffix
from onnx_tflite_plugin.options import ALL, EACH

if TYPE_CHECKING:
    from onnx_tflite_plugin.source import Member, Section

STREAM = Path("-")
SUFFIXES = (".tflite", ".lite")
"""Suffixes of the model files in a folder."""

DescribeDifference = Callable[["Path | bytes | Section"], str]
"""Function that returns the reason why a model's signatures cannot share one ONNX model; empty if they can."""

_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.IGNORECASE)
_BY_NAME_REMEDY = "convert one file at a time, by its name"
_BY_PART_REMEDY = "convert one model at a time, as BUNDLE#PART"
_BY_KEY_REMEDY = "convert them one at a time with --signature KEY"


class Job(NamedTuple):
    """One model to convert.

    ``source``: its path, its content, or a member of a bundle. ``output``: the path to write. ``split_reason``: why
    signatures that were requested as one model are converted to several.
    """

    name: str
    source: Path | bytes | Member
    output: Path
    signature: str | None = None
    split_reason: str = ""

    def load(self) -> Path | bytes | Section:
        """Return the model as an argument of ``convert``; unpacks a model of a bundle."""
        return self.source if isinstance(self.source, Path | bytes) else self.source.load()

    @property
    def is_memory_mapped(self) -> bool:
        """True if constants of the model are mapped into memory.

        Truncating its file may then end the process.
        """
        from onnx_tflite_plugin.source.content import MAPPED_FILE_BYTES

        if isinstance(self.source, bytes):
            return False
        return (self.source.stat().st_size if isinstance(self.source, Path) else self.source.size) > MAPPED_FILE_BYTES


def collect_jobs(
    source: Path,
    output: Path | None,
    signature: str | None,
    command_files: CommandFiles | None = None,
    describe_difference: DescribeDifference = lambda source: "they were not compared",
) -> tuple[list[Job], bool]:
    """Return the models of a source, and True if the source is a single model.

    The ONNX models of a folder are written next to the TFLite models, or into ``output`` with the same subfolders.
    Those of a bundle are written into a folder with the bundle's name. A model keeps its name if ``output`` is a
    folder. Every output is registered in ``command_files``; none is created yet. Raises UsageProblem and InvalidModel.
    """
    command_files = command_files or CommandFiles()
    source_jobs, is_single, remedy = _source_jobs(source, output, signature, command_files)
    expanded_jobs = _expand_signatures(source_jobs, signature, describe_difference)
    if len(expanded_jobs) > len(source_jobs):
        remedy = _BY_KEY_REMEDY
    for job in expanded_jobs:
        if job.output != STREAM:
            command_files.register_output(job.output, f"{job.name!r}", remedy)
        if problem := describe_wrong_suffix(job.output):
            raise UsageProblem(f"{problem}, or a folder for several models")
    return expanded_jobs, is_single and len(expanded_jobs) == 1 and expanded_jobs[0].output == source_jobs[0].output


def _source_jobs(
    source: Path, output: Path | None, signature: str | None, command_files: CommandFiles
) -> tuple[list[Job], bool, str]:
    """Return the models of a source, True for a single model, and a remedy.

    The remedy is for two outputs with the same path.
    """
    if source != STREAM and source.is_dir():
        if output == STREAM:
            raise UsageProblem("a folder of models cannot be written to stdout; name a folder for the ONNX models")
        if output is not None and output.suffix.lower() == ".onnx" and not output.exists():
            raise UsageProblem(
                f"{output} has the suffix of one model, but {source} is a folder of models; name a folder to write into"
            )
        folder_jobs = _folder_jobs(source, output)
        for job in folder_jobs:
            command_files.register_input(source / job.name, "a model of the folder itself")
        return folder_jobs, False, _BY_NAME_REMEDY
    from onnx_tflite_plugin.source.bundle import is_bundle
    from onnx_tflite_plugin.source.reader import check_format

    if source == STREAM:
        content = read_stdin()
        if output is None:
            raise UsageProblem("name the file to write, or - for stdout: the model on stdin has no name")
        return [Job("stdin", content, output, signature)], True, _BY_KEY_REMEDY
    command_files.register_input(check_readable(source), "the model itself")
    bundle = bundle_of(source)
    if bundle != source or is_bundle(source):
        return _bundle_jobs(source, bundle, output)
    check_format(source)  # before outputs are compared: the output of an .onnx source would be the source itself
    output = output or source.with_suffix(".onnx")
    if output.is_dir():
        output /= source.with_suffix(".onnx").name
    return [Job(str(source), source, output, signature)], True, _BY_KEY_REMEDY


def read_stdin() -> bytes:
    """Return the model on stdin. Raises UsageProblem for a terminal or a bundle."""
    from onnx_tflite_plugin.source.bundle import has_bundle_signature

    if sys.stdin.isatty():
        raise UsageProblem("- reads the model from stdin, which is a terminal: pipe a file into it")
    content = sys.stdin.buffer.read()
    if has_bundle_signature(content):
        raise UsageProblem("stdin holds a bundle of models; give the name of its file")
    return content


def folder_models(folder: Path) -> list[Path]:
    """Return the models of a folder and its subfolders.

    Raises UsageProblem if there is none.
    """
    files = sorted(file for file in folder.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())
    if not files:
        from onnx_tflite_plugin.source.formats import describe_folder

        description = describe_folder(folder)
        raise UsageProblem(
            f"{folder} holds no {' or '.join(SUFFIXES)} file" + (f": {description}" if description else "")
        )
    return files


def _folder_jobs(folder: Path, output: Path | None) -> list[Job]:
    names = [(file, file.relative_to(folder)) for file in folder_models(folder)]
    return [
        Job(str(name), file, (file if output is None else output / name).with_suffix(".onnx")) for file, name in names
    ]


def _bundle_jobs(source: Path, bundle: Path, output: Path | None) -> tuple[list[Job], bool, str]:
    """Return the models of a bundle, or the model that the source names.

    If ``output`` is a file, the bundle must hold a single model, which is written to that file.
    """
    from onnx_tflite_plugin.source.bundle import MODEL, find_model, format_part, members
    from onnx_tflite_plugin.source.formats import describe_archive

    output_is_file = (
        output is not None and (output == STREAM or output.suffix.lower() == ".onnx") and not output.is_dir()
    )
    folder = output or (bundle.with_suffix("") if source == bundle else bundle.parent)
    if not output_is_file and (folder == bundle or folder.is_file()):
        raise UsageProblem(f"{bundle} is a bundle; name a folder or an .onnx file as the output")
    if source != bundle:
        models = [model] if (model := find_model(source)) is not None else []
    else:
        models = [member for member in members(bundle, bundle.name) if member.kind == MODEL]
    if not models:
        description = describe_archive([member.name for member in members(bundle, bundle.name)])
        if description:
            raise UsageProblem(f"{bundle} is not a TFLite model: {description}")
        raise UsageProblem(f"{bundle} is a bundle without a TFLite model; `onnx-tflite inspect` lists its contents")
    if output_is_file and output is not None:
        if len(models) == 1:
            return [Job(models[0].name, models[0], output)], True, _BY_PART_REMEDY
        destination = "stdout" if output == STREAM else f"the file {output}"
        raise UsageProblem(
            f"{bundle} holds {len(models)} models, but {destination} can hold only one; name a folder as the output, "
            f"or one model, such as {format_part(bundle, models[0].name)}"
        )
    jobs = [
        Job(member.name, member, folder / f"{safe_file_name(member.name.removesuffix('.tflite'))}.onnx")
        for member in models
    ]
    return jobs, source != bundle, _BY_PART_REMEDY


def _expand_signatures(
    source_jobs: Sequence[Job], signature: str | None, describe_difference: DescribeDifference
) -> list[Job]:
    """Return a job for each model, or for each signature of each model.

    Signatures that can share one ONNX model are one job if ``all`` are requested.
    """
    if signature not in (ALL, EACH):
        return [Job(job.name, job.source, job.output, signature) for job in source_jobs]
    from onnx_tflite_plugin.source import read

    expanded_jobs = []
    for job in source_jobs:
        try:
            keys = [entry.key for entry in read(job.load()).signatures]
        except InvalidModel:  # its conversion reports the reason, and other models are converted
            keys = []
        if len(keys) < 2 or signature in keys:
            expanded_jobs.append(Job(job.name, job.source, job.output, signature if signature in keys else None))
            continue
        reason = describe_difference(job.load()) if signature == ALL else ""
        if signature == ALL and not reason:
            expanded_jobs.append(Job(job.name, job.source, job.output, ALL))
            continue
        if job.output == STREAM:
            raise UsageProblem(
                f"--signature {signature} writes {len(keys)} files, which stdout cannot hold; pass "
                "OUTPUT.onnx: each file is then named OUTPUT.KEY.onnx"
            )
        for key in keys:
            output = job.output.with_name(f"{job.output.stem}.{safe_file_name(key)}.onnx")
            expanded_jobs.append(Job(f"{job.name}: {key}", job.source, output, key, reason))
    return expanded_jobs


def safe_file_name(text: str) -> str:
    """Return a file name that is valid on every system.

    Windows reserves some names for devices.
    """
    name = re.sub(r"[^\w.-]+", "_", text.replace("/", "_")).strip("._") or "model"
    return f"_{name}" if _RESERVED.match(name) else name
