"""Write the output of commands into the documents.

A block behind `<!-- output of: COMMAND -->` holds all of it; behind `<!-- first line of: COMMAND -->`, its first line.

python tools/example_outputs.py
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(
    r"(<!-- (?P<part>output|first line) of: (?P<command>[^\n]*) -->\n```text\n).*?(?P<end>```)", re.DOTALL
)

FILE = re.compile(r"<!-- test: file (\w+) -->\n```python\n(.*?)```", re.DOTALL)


def output_of(command: str, part: str, page: str) -> str:
    """Return what a command prints in a folder with only the files of its page: all of it, or the first line."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in FILE.findall(page):
            (Path(folder) / f"{name}.py").write_text(text, encoding="utf-8")
        words = [sys.executable, "-m", *shlex.split(command)]
        printed = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True).stdout
    printed = printed.splitlines()[0] if part == "first line" else printed
    return "\n".join(line.rstrip() for line in printed.strip("\n").splitlines()) + "\n"


def main() -> None:
    """Write all blocks anew."""
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        text = page.read_text(encoding="utf-8")
        made = BLOCK.sub(
            lambda block, page=text: f"{block[1]}{output_of(block['command'], block['part'], page)}{block['end']}", text
        )
        if made != text:
            page.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
