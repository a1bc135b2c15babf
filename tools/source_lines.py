"""Count the lines of `src/` that hold code: no docstrings, comments or blank lines.

python tools/source_lines.py [FOLDER ...]

Prints code lines and modules of each package, and their sum.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

NO_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)


def code_lines(source: str) -> int:
    """Number of lines that hold code; strings that stand alone count as docstrings."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {
        line
        for token in tokens
        if token.type not in NO_CODE and token.type != tokenize.ENDMARKER
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def main(folders: list[Path]) -> None:
    lines, modules = Counter[str](), Counter[str]()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            package = path.relative_to(folder).parts[0].removesuffix(".py")
            lines[package] += code_lines(path.read_text(encoding="utf-8"))
            modules[package] += 1
    for package, number in lines.most_common():
        print(f"{package:<15}{number:>7,}{modules[package]:>5} modules")
    print(f"{'sum':<15}{lines.total():>7,}{modules.total():>5} modules")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, default=[Path("src/clockwatt")])
    main(parser.parse_args().folders)
