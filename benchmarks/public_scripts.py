"""Run `clockwatt preflight` on public training scripts, unchanged, with tiny data that are drawn here.

python benchmarks/public_scripts.py SOURCES [--only NAME ... | --read] [--python PYTHON]

SOURCES holds one folder a repository, as checked out; the file COMMIT in each names its commit:
examples (pytorch/examples), nanoGPT (karpathy/nanoGPT),
timm (huggingface/pytorch-image-models), transformers (huggingface/transformers).
PYTHON has clockwatt, datasets and evaluate.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import result_file
from PIL import Image

_GPU, _LIMIT_S = "h200", 300
_FIELDS = ["script", "arguments", "end", "network", "settings", "pass", "time, ms", "energy, J", "peak, GiB", "says"]
_WORDS = ("the", "a", "cat", "dog", "sees", "runs", "from", "to", "house", "tree", ".", "and", "then", "it", "is")


def _mnist(folder: Path) -> None:
    """Write MNIST's four files with noise in place of digits."""
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(1)
    for part, count in (("train", 2048), ("t10k", 256)):
        pixels = generator.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = np.arange(count, dtype=np.uint8) % 10
        images_head, labels_head = struct.pack(">IIII", 2051, count, 28, 28), struct.pack(">II", 2049, count)
        (raw / f"{part}-images-idx3-ubyte").write_bytes(images_head + pixels.tobytes())
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(labels_head + labels.tobytes())


def _images(folder: Path, count: int, size: int = 256) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(2)
    for number in range(count):
        pixels = generator.integers(0, 256, (size, size, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.jpg")


def _classes(folder: Path) -> None:
    for part, count in (("train", 80), ("val", 8)):
        for kind in ("cat", "dog"):
            _images(folder / part / kind, count)


def _text(seed: int, words: int) -> str:
    return " ".join(np.random.default_rng(seed).choice(_WORDS, words))


def _table(file: Path, rows: int, columns: dict[str, Callable[[int], object]]) -> None:
    with file.open("w", newline="", encoding="utf-8") as opened:
        writer = csv.writer(opened)
        writer.writerow(columns)
        writer.writerows([make(row) for make in columns.values()] for row in range(rows))


def _hugging_face(folder: Path) -> None:
    """Save configurations of BERT-base, GPT-2, T5-small and ViT-B/16 with a tokenizer of few words."""
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join([*special, *_WORDS]), encoding="utf-8")
    tokenizer = transformers.BertTokenizer(vocab={word: n for n, word in enumerate([*special, *_WORDS])})
    tokenizer.model_max_length = 512
    for name, made in {
        "bert": transformers.BertForMaskedLM(transformers.BertConfig()),
        "gpt2": transformers.GPT2LMHeadModel(transformers.GPT2Config()),
        "t5": transformers.T5ForConditionalGeneration(
            transformers.T5Config(d_model=512, decoder_start_token_id=0, num_layers=6)
        ),
        "vit": transformers.ViTForImageClassification(transformers.ViTConfig()),
    }.items():
        made.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    transformers.ViTImageProcessor().save_pretrained(folder / "vit")
    long = lambda row: _text(row, 200)  # noqa: E731
    _table(folder / "pairs.csv", 200, {"sentence1": long, "sentence2": long, "label": lambda row: row % 2})
    _table(folder / "summaries.csv", 200, {"text": long, "summary": lambda row: _text(row, 20)})
    (folder / "text.txt").write_text("\n".join(_text(row, 200) for row in range(2000)), encoding="utf-8")
    tags = ("O", "B-PER", "I-PER")
    rows = [json.dumps({"tokens": _text(n, 20).split(), "ner_tags": [tags[n % 3]] * 20}) for n in range(200)]
    (folder / "entities.json").write_text("\n".join(rows), encoding="utf-8")


def make_data(sources: Path) -> None:
    """Write the data of all scripts where they look for them."""
    _mnist(sources / "examples" / "data")
    _mnist(sources / "examples" / "mnist_forward_forward" / "data")
    for part in ("train", "test"):
        _images(sources / "examples" / "super_resolution" / "dataset" / "BSDS300" / "images" / part, 80)
    words = sources / "examples" / "word_language_model" / "data" / "wikitext-2"
    words.mkdir(parents=True, exist_ok=True)
    for seed, part in enumerate(("train", "valid", "test")):
        (words / f"{part}.txt").write_text("\n".join(_text(seed, 20) for _ in range(2000)), encoding="utf-8")
    _classes(sources / "classes")
    characters = sources / "nanoGPT" / "data" / "shakespeare_char"
    (characters / "input.txt").write_text(_text(3, 20_000), encoding="utf-8")
    subprocess.run([sys.executable, "prepare.py"], cwd=characters, check=True, stdout=subprocess.DEVNULL)
    _hugging_face(sources / "hugging_face")


@dataclass(frozen=True)
class Script:
    """A script: its folder below SOURCES, its file there and its arguments; {} stands for SOURCES."""

    folder: str
    file: str
    arguments: str = ""

    @property
    def name(self) -> str:
        """Repository and file."""
        return f"{self.folder}/{self.file}"


_HF = "transformers/examples/pytorch"
_TRAINER = "--do_train --output_dir {}/out --report_to none"
SCRIPTS = (
    Script("examples/mnist", "main.py"),
    Script("examples/mnist_rnn", "main.py", "--accel"),
    Script("examples/mnist_forward_forward", "main.py"),
    Script("examples/siamese_network", "main.py"),
    Script("examples/vae", "main.py"),
    Script("examples/dcgan", "main.py", "--dataset fake --accel"),
    Script("examples/imagenet", "main.py", "--dummy --arch resnet50 -b 64"),
    Script("examples/imagenet", "main.py", "{}/classes --arch resnet18 -b 64 --gpu 0"),
    Script("examples/word_language_model", "main.py", "--accel"),
    Script("examples/word_language_model", "main.py", "--accel --use-optimizer"),
    Script("examples/word_language_model", "main.py", "--accel --use-optimizer --model Transformer"),
    Script("examples/super_resolution", "main.py", "--upscale_factor 3 --accel"),
    Script("nanoGPT", "train.py", "config/train_shakespeare_char.py"),
    Script("nanoGPT", "train.py", "config/train_shakespeare_char.py --compile=False"),
    Script("timm", "train.py", "--data-dir {}/classes --num-classes 2 --model resnet50 -b 32 --output {}/out"),
    Script(
        "timm", "train.py",
        "--data-dir {}/classes --num-classes 2 --model vit_small_patch16_224 -b 32 --amp --opt adamw "
        "--model-ema --mixup 0.8 --clip-grad 1 --grad-accum-steps 2 --output {}/out",
    ),
    Script(
        "timm", "train.py",
        "--data-dir {}/classes --num-classes 2 --model convnext_tiny -b 32 --amp --amp-dtype bfloat16 --channels-last "
        "--torchcompile --output {}/out",
    ),
    Script(f"{_HF}/text-classification", "run_glue.py",
           f"--model_name_or_path {{}}/hugging_face/bert --train_file {{}}/hugging_face/pairs.csv "
           f"--validation_file {{}}/hugging_face/pairs.csv --max_seq_length 128 {_TRAINER}"),
    Script(f"{_HF}/text-classification", "run_glue_no_trainer.py",
           "--model_name_or_path {}/hugging_face/bert --train_file {}/hugging_face/pairs.csv "
           "--validation_file {}/hugging_face/pairs.csv --max_length 128 --pad_to_max_length"),
    Script(f"{_HF}/language-modeling", "run_clm.py",
           f"--config_name {{}}/hugging_face/gpt2 --tokenizer_name {{}}/hugging_face/gpt2 --block_size 512 --bf16 "
           f"--train_file {{}}/hugging_face/text.txt --gradient_accumulation_steps 2 {_TRAINER}"),
    Script(f"{_HF}/language-modeling", "run_clm_no_trainer.py",
           "--config_name {}/hugging_face/gpt2 --tokenizer_name {}/hugging_face/gpt2 --block_size 512 "
           "--train_file {}/hugging_face/text.txt --validation_file {}/hugging_face/text.txt"),
    Script(f"{_HF}/language-modeling", "run_mlm.py",
           f"--model_name_or_path {{}}/hugging_face/bert --max_seq_length 128 --fp16 "
           f"--train_file {{}}/hugging_face/text.txt {_TRAINER}"),
    Script(f"{_HF}/image-classification", "run_image_classification.py",
           f"--model_name_or_path {{}}/hugging_face/vit --train_dir {{}}/classes/train "
           f"--remove_unused_columns False --label_column_name label {_TRAINER}"),
    Script(f"{_HF}/token-classification", "run_ner.py",
           f"--model_name_or_path {{}}/hugging_face/bert --train_file {{}}/hugging_face/entities.json {_TRAINER}"),
    Script(f"{_HF}/summarization", "run_summarization.py",
           f"--model_name_or_path {{}}/hugging_face/t5 --train_file {{}}/hugging_face/summaries.csv "
           f"--text_column text --summary_column summary {_TRAINER}"),
)  # fmt: skip


def _log(sources: Path, script: Script) -> Path:
    name = re.sub(r"[^a-z0-9]+", "-", f"{script.name} {script.arguments}".lower())[:120]
    return sources / "logs" / f"{name}.log"


def called(script: Script) -> str:
    """Return the name of a script with its arguments, which tells it apart."""
    return f"{script.name} {script.arguments}".strip().replace("{}/", "")


def preflight(python: Path, sources: Path, script: Script, gpu: str = _GPU) -> str:
    """Run one script, and return what it says and the answer."""
    arguments = script.arguments.replace("{}", str(sources)).split()
    command = [str(python), "-m", "clockwatt", "preflight", "--gpu", gpu, "--json", "--", str(python), script.file]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    started = time.monotonic()
    try:
        ended = subprocess.run(
            [*command, *arguments], cwd=sources / script.folder, env=environment, check=False, capture_output=True,
            text=True, timeout=_LIMIT_S,
        )  # fmt: skip
        text = f"{ended.stderr}\n{ended.stdout}"
    except subprocess.TimeoutExpired:
        text = f"error: did not end within {_LIMIT_S} s\n"
    print(f"{called(script)}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    return text


def answer_in(text: str) -> dict[str, Any] | None:
    """Return the answer in what a script and preflight have said; None if it was refused."""
    _, start, output = text.rpartition("\n{\n")
    try:
        answer: dict[str, Any] | None = json.loads(f"{start}{output}") if start else None
    except json.JSONDecodeError:
        return None
    return answer


def row_of(sources: Path, script: Script) -> list[object]:
    """Return the row of a script from its log."""
    text = _log(sources, script).read_text(encoding="utf-8")
    shown = re.sub(r"\{\}/", "", script.arguments)
    answer = answer_in(text)
    if answer is None:
        faults = [line for line in text.splitlines() if re.match(r"[A-Za-z.]*(Error|Exception): ", line)]
        errors = [line for line in text.splitlines() if line.startswith("error: ")]
        cause = (faults or errors or ["no message"])[-1].replace(f"{sources}/", "")
        return [script.name, shown, "refused", *["–"] * 6, cause]
    memory = (answer.get("memory") or {}).get("allocated_bytes")
    return [
        script.name, shown, "predicted", answer["network"], answer["execution"], answer["pass"],
        round(answer["time_s"] * 1e3, 2), round(answer["energy_j"], 3),
        "–" if memory is None else round(memory / 2**30, 2), " ".join(answer.get("warnings", [])),
    ]  # fmt: skip


def main() -> None:
    """Run the scripts and write the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("sources", type=Path)
    parser.add_argument("--only", nargs="*", default=[], help="run these alone, and read the logs of the others")
    parser.add_argument("--read", action="store_true", help="run none, and read all logs")
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    options = parser.parse_args()
    sources = options.sources.resolve()
    if not (sources / "hugging_face" / "entities.json").exists():
        make_data(sources)
    for script in () if options.read else SCRIPTS:
        if not options.only or any(word in f"{script.name} {script.arguments}" for word in options.only):
            log = _log(sources, script)
            log.parent.mkdir(exist_ok=True)
            log.write_text(preflight(options.python, sources, script), encoding="utf-8")
    rows = [row_of(sources, script) for script in SCRIPTS]
    commits = {one.parent.name: one.read_text(encoding="utf-8").strip()[:12] for one in sources.glob("*/COMMIT")}
    predicted = sum(row[2] == "predicted" for row in rows)
    result_file.write(
        "preflight", "Public training scripts, unchanged, predicted for an H200", _FIELDS, rows,
        targets=[result_file.target("runs unchanged and answered", predicted, at_least=10, unit=f"of {len(rows)}")],
        notes=[
            f"Commits: {', '.join(f'{name} {commit}' for name, commit in sorted(commits.items()))}.",
            ("Scripts are also refused if they need the Hugging Face Hub (FileNotFoundError), which was not reachable, "
            "or do not run with the installed versions of transformers and accelerate (ImportError, "
            "AttributeError). The tables of first real steps compare answers for an H100."),
        ],
    )  # fmt: skip


if __name__ == "__main__":
    main()
