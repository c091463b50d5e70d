"""What a source stands for: one model, the models of a folder or a bundle, or each signature of a model."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from onnx_tflite_plugin.cli.failures import UsageProblem
from onnx_tflite_plugin.cli.paths import readable, writable

STREAM = Path("-")
ALL = "all"
SUFFIXES = (".tflite", ".lite")
"""How the files of a folder end that are taken for models."""


class Job(NamedTuple):
    """One model to convert: what it is called, its path or content, where it goes, and its signature."""

    name: str
    source: Path | bytes
    output: Path
    signature: str | None = None


def jobs(source: Path, output: Path | None, signature: str | None) -> tuple[list[Job], bool]:
    """The models of a source, and whether it is one model as such. Raises UsageProblem and InvalidModel.

    A folder's go beside each, or into ``output`` with its subfolders; a bundle's into a folder of its name. A model keeps
    its name where ``output`` is a directory.
    """
    if source != STREAM and source.is_dir():
        return _each_signature(_of_folder(source, output), signature), False
    from onnx_tflite_plugin.source.bundle import is_bundle, starts_bundle

    if source == STREAM:
        content = _piped()
        if starts_bundle(content):
            raise UsageProblem("stdin holds a bundle of models; give its file's name")
        if output is None:
            raise UsageProblem("name the file to write, or - for stdout: the model on stdin has no name")
        single = Job("stdin", content, output if output == STREAM else writable(output), signature)
    elif is_bundle(readable(source)):
        return _each_signature(_of_bundle(source, output), signature), False
    else:
        output = output or source.with_suffix(".onnx")
        if output.is_dir():
            output /= source.with_suffix(".onnx").name
        single = Job(
            str(source), source, output if output == STREAM else writable(output, sources=(source,)), signature
        )
    expanded = _each_signature([single], signature)
    return expanded, expanded == [single]


def _piped() -> bytes:
    if sys.stdin.isatty():
        raise UsageProblem("- reads the model from stdin, which is a terminal: pipe a file into it")
    return sys.stdin.buffer.read()


def _of_folder(folder: Path, output: Path | None) -> list[Job]:
    files = sorted(file for file in folder.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())
    if not files:
        raise UsageProblem(f"{folder} holds no {' or '.join(SUFFIXES)} file")
    places = [(file if output is None else output / file.relative_to(folder)).with_suffix(".onnx") for file in files]
    first: dict[Path, Path] = {}
    for file, place in zip(files, places, strict=True):
        if first.setdefault(place, file) != file:
            raise UsageProblem(
                f"{first[place]} and {file} would both be written to {place}; convert one of them by its name"
            )
    return [Job(str(file.relative_to(folder)), file, _made(place)) for file, place in zip(files, places, strict=True)]


def _of_bundle(path: Path, output: Path | None) -> list[Job]:
    from onnx_tflite_plugin.source.bundle import MODEL, members

    folder = output or path.with_suffix("")
    if folder == path or folder.is_file():
        raise UsageProblem(f"{path} holds several models; name a folder for them")
    models = [member for member in members(path.read_bytes(), path.name) if member.kind == MODEL]
    if not models:
        raise UsageProblem(f"{path} is a bundle without a TFLite model; inspect lists what it holds")
    return [
        Job(member.name, member.content, _made(folder / f"{_file_name(member.name.removesuffix('.tflite'))}.onnx"))
        for member in models
    ]


def _made(path: Path) -> Path:
    """The path, its folder made; what a model's name contains never leads out of the folder."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageProblem(f"the folder {path.parent} cannot be made: {error.strerror}") from None
    return writable(path)


def _each_signature(given_jobs: Sequence[Job], signature: str | None) -> list[Job]:
    """Each model once, or once for each of its signatures."""
    if signature != ALL:
        return [Job(job.name, job.source, job.output, signature) for job in given_jobs]
    from onnx_tflite_plugin.source import read

    expanded = []
    for job in given_jobs:
        keys = [one.key for one in read(job.source).signatures]
        if len(keys) < 2 or ALL in keys:
            expanded.append(Job(job.name, job.source, job.output, ALL if ALL in keys else None))
            continue
        if job.output == STREAM:
            raise UsageProblem(f"--signature all writes {len(keys)} files; name one to derive their names from")
        for key in keys:
            place = job.output.with_name(f"{job.output.stem}.{_file_name(key)}.onnx")
            expanded.append(Job(f"{job.name}: {key}", job.source, place, key))
    return expanded


def _file_name(text: str) -> str:
    """Something that is one file's name on every system."""
    return re.sub(r"[^\w.-]+", "_", text.replace("/", "_")).strip("._") or "model"
