"""Compare onnxruntime-genai's tokens, from the written folder, with LiteRT's."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from click.testing import CliRunner
from onnx_tflite_genai.bundle import read_metadata
from onnx_tflite_genai.command import genai

from conformance.language_model import Sizes, language_model
from onnx_tflite_plugin import ConversionError, Session, bundle_parts, convert

MODEL, SENTENCEPIECE, METADATA, TOKENIZER = 3, 4, 5, 6
SIZES = Sizes()
PROMPT = "hello"
END = 1  # id of the token </s>
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def tokenizer() -> bytes:
    """Return a tokenizer with one letter per token of the model."""
    letters = ["Ġ", *"abcdefghijklmnopqrstuvwxyz", "A", "B"]
    vocabulary = {"<s>": 0, "</s>": END, **{letter: 2 + k for k, letter in enumerate(letters)}}
    assert len(vocabulary) == SIZES.vocabulary
    special = [
        {
            "id": k,
            "content": text,
            "special": True,
            **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False),
        }
        for text, k in (("<s>", 0), ("</s>", END))
    ]
    pieces = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "vocab": vocabulary, "merges": [], "fuse_unk": False, "byte_fallback": False}
    return json.dumps(
        {"version": "1.0", "added_tokens": special, "pre_tokenizer": pieces, "decoder": pieces, "model": model}
    ).encode()


def field(number: int, value: int | bytes) -> bytes:
    """Return a protobuf field of small size."""
    if isinstance(value, int):
        return bytes([number << 3, value])
    return bytes([number << 3 | 2, len(value)]) + value


def metadata() -> bytes:
    """Return metadata: a start token by id, a stop token by text, a chat template."""
    return (
        field(1, field(1, field(1, b"\0"))) + field(2, field(2, b"</s>")) + field(5, 19) + field(7, TEMPLATE.encode())
    )


def litert_lm(sections: list[tuple[int, bytes]]) -> bytes:
    """Return a LiteRT-LM bundle with these sections, after litertlm_header_schema.fbs."""
    builder = flatbuffers.Builder(1024)
    position, tables, body = 16384, [], b""
    for kind, content in sections:
        builder.StartObject(4)
        builder.PrependUint64Slot(1, position + len(body), 0)
        body += content
        builder.PrependUint64Slot(2, position + len(body), 0)
        builder.PrependUint8Slot(3, kind, 0)
        tables.append(builder.EndObject())
    builder.StartVector(4, len(tables), 4)
    for table in reversed(tables):
        builder.PrependUOffsetTRelative(table)
    objects = builder.EndVector()
    builder.StartObject(1)
    builder.PrependUOffsetTRelativeSlot(0, objects, 0)
    section_list = builder.EndObject()
    builder.StartObject(2)
    builder.PrependUOffsetTRelativeSlot(1, section_list, 0)
    builder.Finish(builder.EndObject())
    header = bytes(builder.Output())
    header_start = b"LITERTLM" + struct.pack("<IIIIQ", 1, 0, 0, 0, 32 + len(header)) + header
    return header_start + bytes(position - len(header_start)) + body


def compress_tokenizer(words: bytes) -> bytes:
    return struct.pack("<Q", len(words)) + zlib.compress(words)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / "chat.litertlm"
    sections = [(METADATA, metadata()), (TOKENIZER, compress_tokenizer(tokenizer())), (MODEL, language_model(SIZES))]
    path.write_bytes(litert_lm(sections))
    return path


def run(*arguments: object) -> str:
    """Run the command as users do."""
    command = [sys.executable, "-m", "onnx_tflite_plugin", *map(str, arguments)]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout + completed.stderr


def refusal(*arguments: object) -> str:
    """Return the message with which the command refuses."""
    result = CliRunner().invoke(genai, list(map(str, arguments)))
    assert isinstance(result.exception, ConversionError), result.output
    return str(result.exception)


def generate_in_litert(tokens: list[int], count: int) -> list[int]:
    """Return greedy tokens, each computed by the decode signature."""
    interpreter = Interpreter(model_content=language_model(SIZES))
    runner = interpreter.get_signature_runner("decode")
    caches = {name: np.zeros(info["shape"], np.float32) for name, info in runner.get_input_details().items()}
    generated: list[int] = []
    for position, token in enumerate([*tokens, *[None] * (count - 1)]):
        caches["tokens"] = np.array([[generated[-1] if token is None else token]], np.int32)
        caches["input_pos"] = np.array([position], np.int32)
        results = runner(**caches)
        caches |= {name: results[name] for name in caches if name in results}
        if position >= len(tokens) - 1:
            generated.append(int(results["logits"].argmax()))
    return generated


def test_onnxruntime_genai_generates_the_tokens_of_litert(bundle: Path, tmp_path: Path) -> None:
    runtime: Any = pytest.importorskip("onnxruntime_genai")
    assert "2 layers, 31 tokens, 19 slots" in run("genai", bundle, tmp_path / "chat")
    model = runtime.Model(str(tmp_path / "chat"))
    runtime_tokenizer = runtime.Tokenizer(model)
    tokens = [int(token) for token in runtime_tokenizer.encode(PROMPT)]
    assert tokens == [2 + 1 + ord(letter) - ord("a") for letter in PROMPT]
    generator = runtime.Generator(model, runtime.GeneratorParams(model))
    generator.append_tokens(np.array([tokens], np.int32))
    generated: list[int] = []
    while not generator.is_done() and len(generated) < 9:
        generator.generate_next_token()
        generated.append(int(generator.get_next_tokens()[0]))
    expected = generate_in_litert(tokens, 9)
    expected = expected[: expected.index(END) + 1] if END in expected else expected
    assert generated == expected
    converted = convert(language_model(SIZES), signature="all", attention="causal")
    assert Session(converted).generate(tokens, len(generated)) == generated
    assert runtime_tokenizer.decode(tokens) == PROMPT
    assert (
        runtime_tokenizer.apply_chat_template(
            json.dumps([{"role": "user", "content": PROMPT}]), add_generation_prompt=False
        )
        == PROMPT
    )


def test_the_folder_names_tokens_and_sizes(bundle: Path, tmp_path: Path) -> None:
    run("genai", bundle, tmp_path / "chat")
    config = json.loads((tmp_path / "chat" / "genai_config.json").read_text())["model"]
    assert (config["bos_token_id"], config["eos_token_id"], config["vocab_size"]) == (0, END, SIZES.vocabulary)
    assert config["context_length"] == SIZES.slots
    sizes = ("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_size")
    assert [config["decoder"][name] for name in sizes] == [SIZES.layers, SIZES.heads, SIZES.groups, SIZES.depth]
    written = json.loads((tmp_path / "chat" / "tokenizer_config.json").read_text())
    assert (written["bos_token"], written["eos_token"], written["chat_template"]) == ("<s>", "</s>", TEMPLATE)
    assert (tmp_path / "chat" / "tokenizer.json").read_bytes() == tokenizer()
    assert {path.name for path in (tmp_path / "chat").iterdir()} == {
        "model.onnx", "model.onnx.data", "genai_config.json", "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    assert len({path.stat().st_mode for path in (tmp_path / "chat").iterdir()}) == 1


def test_bundle_without_tokenizer_is_refused(tmp_path: Path) -> None:
    path, tokenizer_path = tmp_path / "chat.litertlm", tmp_path / "tokenizer.json"
    path.write_bytes(litert_lm([(SENTENCEPIECE, b"pieces"), (MODEL, language_model(SIZES))]))
    message = refusal(path, tmp_path / "chat")
    assert "no tokenizer.json but a SentencePiece model" in message
    assert "--tokenizer" in message
    assert not (tmp_path / "chat").exists()
    arguments = path, tmp_path / "chat", "--tokenizer", tokenizer_path
    for content, reason in ((b"no JSON", "not valid JSON"), (b"{}", "has no model")):
        tokenizer_path.write_bytes(content)
        assert reason in refusal(*arguments, "--stop", "</s>")
    tokenizer_path.write_bytes(tokenizer())
    assert "pass one with --stop (special tokens of the tokenizer: <s>, </s>)" in refusal(*arguments)
    assert "the tokenizer has no token '<end>'" in refusal(*arguments, "--stop", "<end>")
    assert not (tmp_path / "chat").exists()
    run("genai", *arguments, "--stop", "</s>")
    assert json.loads((tmp_path / "chat" / "genai_config.json").read_text())["model"]["eos_token_id"] == END


def test_a_model_that_is_not_a_decoder_is_refused(tmp_path: Path) -> None:
    digits = Path(__file__).parents[3] / "examples" / "digits_float.tflite"
    tokenizer_path = tmp_path / "tokenizer.json"
    tokenizer_path.write_bytes(tokenizer())
    assert "the file has 1 signature" in refusal(
        digits, tmp_path / "chat", "--tokenizer", tokenizer_path, "--stop", "</s>"
    )
    assert not (tmp_path / "chat").exists()


@pytest.mark.parametrize("cut", [1, 4, 9])
def test_damaged_metadata_is_refused(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "chat.litertlm"
    path.write_bytes(litert_lm([(METADATA, metadata()[:-cut] + b"\xff" * (cut > 4))]))
    with pytest.raises(ConversionError, match="metadata of the bundle is damaged"):
        read_metadata(bundle_parts(path))
