"""A tokenizer of BERT's kind, with a vocabulary of the texts that it is made from: nothing is downloaded."""

from __future__ import annotations

import re
from collections.abc import Iterable

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
"""First tokens of the vocabulary; padding has id 0."""

_WORDS = re.compile(r"\w+|[^\w\s]")


class WordPieces:
    """Lower-case words, split into the longest pieces of the vocabulary; pieces within a word begin with `##`.

    Parameters
    ----------
    texts
        Their words are in the vocabulary if they have at most `longest` letters, and their letters in any case.
    longest
        Longer words are split.

    Examples
    --------
    >>> pieces = WordPieces(["what a card takes"], longest=4)
    >>> pieces.split("a card takes")
    ['a', 'card', 'take', '##s']
    """

    def __init__(self, texts: Iterable[str], *, longest: int = 6) -> None:
        words = {word for text in texts for word in _WORDS.findall(text.lower())}
        letters = {letter for word in words for letter in word}
        pieces = {word[:longest] for word in words} | letters | {f"##{letter}" for letter in letters}
        self.tokens = [*SPECIAL, *sorted(pieces)]
        self._ids = {token: number for number, token in enumerate(self.tokens)}

    def __len__(self) -> int:
        return len(self.tokens)

    def split(self, text: str) -> list[str]:
        """Return the pieces of a text; a word with an unknown letter is `[UNK]`."""
        return [piece for word in _WORDS.findall(text.lower()) for piece in self._pieces(word)]

    def _pieces(self, word: str) -> list[str]:
        pieces, start = [], 0
        while start < len(word):
            prefix = "##" if start else ""
            ends = (end for end in range(len(word), start, -1) if prefix + word[start:end] in self._ids)
            end = next(ends, None)
            if end is None:
                return ["[UNK]"]
            pieces.append(prefix + word[start:end])
            start = end
        return pieces

    def encode(self, question: str, paragraph: str) -> list[int]:
        """Return the ids of `[CLS] question [SEP] paragraph [SEP]`."""
        tokens = ["[CLS]", *self.split(question), "[SEP]", *self.split(paragraph), "[SEP]"]
        return [self._ids[token] for token in tokens]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids, without special tokens; one beyond the vocabulary is unknown."""
        tokens = [self.tokens[number] if number < len(self) else "[UNK]" for number in ids]
        return " ".join(token for token in tokens if token not in SPECIAL).replace(" ##", "")
