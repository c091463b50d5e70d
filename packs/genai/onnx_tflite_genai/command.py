"""Command ``genai``: write a folder for onnxruntime-genai from a bundle."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import click
import onnx

import onnx_tflite_plugin as otp
from onnx_tflite_genai.bundle import load_model, read_metadata, read_tokenizer
from onnx_tflite_genai.config import SpecialTokens, make_config, make_tokenizer_config, parse_tokenizer
from onnx_tflite_genai.graph import adapt_to_genai


@click.command()
@click.argument("bundle", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--tokenizer",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A Hugging Face tokenizer.json, if the bundle has none.",
)
@click.option(
    "--stop",
    "stops",
    multiple=True,
    metavar="TOKEN",
    help="A token that ends the text, if the bundle names none. Repeatable.",
)
def genai(bundle: Path, folder: Path, tokenizer: Path | None, stops: tuple[str, ...]) -> None:
    """Write a folder for onnxruntime-genai from the BUNDLE of a language model.

    The bundle is a .litertlm or .tflite file.

    The folder holds the model, its weights, genai_config.json and the tokenizer. onnxruntime_genai.Model(DIR) generates text.
    """
    parts = otp.bundle_parts(bundle) if bundle.suffix != ".tflite" else []
    metadata = read_metadata(parts)
    metadata = replace(metadata, stop_texts=(*metadata.stop_texts, *stops))
    tokenizer_text = tokenizer.read_bytes() if tokenizer is not None else read_tokenizer(parts)
    special = SpecialTokens.of(parse_tokenizer(tokenizer_text), metadata)
    conversion = otp.convert(load_model(parts) if parts else bundle, signature="all", attention="causal", logits="last")
    model = conversion.proto
    decoder = adapt_to_genai(model)
    folder.mkdir(parents=True, exist_ok=True)
    _save(model, folder)
    (folder / "tokenizer.json").write_bytes(tokenizer_text)
    _write(folder / "tokenizer_config.json", make_tokenizer_config(special, metadata))
    _write(folder / "genai_config.json", make_config(decoder, special))
    click.echo(f"wrote {folder}: {decoder.layers} layers, {decoder.vocabulary} tokens, {decoder.cache_length} slots")


def _save(model: onnx.ModelProto, folder: Path) -> None:
    """Write the model, and its weights into the same folder."""
    for name in ("model.onnx", "model.onnx.data"):
        (folder / name).unlink(missing_ok=True)
    onnx.save(model, folder / "model.onnx", save_as_external_data=True, location="model.onnx.data", size_threshold=1024)
    # onnx.save makes the file of the weights readable only by its owner.
    (folder / "model.onnx.data").chmod((folder / "model.onnx").stat().st_mode)


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
