"""From texts to tokens: BERT's WordPiece and GPT-2's byte-level BPE, from their published files.

    word_piece  lower case without accents; [CLS] pieces of words [SEP], filled up with [PAD]
    byte_pairs  case and accents kept, a token for every byte; filled up with the end of text

Both cut a text at `length` tokens, which include the marks of its ends.

Source: J. Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language
  Understanding", NAACL 2019; A. Radford et al., "Language Models are Unsupervised Multitask
  Learners", 2019. The package `tokenizers` computes them, here one text at a time: a job has one
  core, and a batch would keep more of each text than its tokens.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tokenizers.implementations import BertWordPieceTokenizer, ByteLevelBPETokenizer
from tokenizers.pre_tokenizers import ByteLevel

from fedlib.data.checks import check_count
from fedlib.data.raw import RawFile
from fedlib.errors import DataError
from fedlib.federation import Tokens

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")  # required in a vocabulary of word pieces
SHORTEST = 3  # the two ends of a text and one piece
END = "<|endoftext|>"  # of GPT-2, which has no padding token


class Tokeniser(NamedTuple):
    """Turns texts into tokens.

    Attributes:
      length: of every text, filled up or cut.
      tokens: size of the vocabulary and padding token.
      encode: gives the tokens of one text, at most `length`, not filled up.
    """

    length: int
    tokens: Tokens
    encode: Callable[[str], Sequence[int]]

    def rows(self, texts: Iterable[str], num: int) -> np.ndarray:
        """`num` texts -> [num, length] int32"""
        found = np.full((num, self.length), self.tokens.pad, np.int32)
        for row, text in zip(found, texts, strict=True):
            tokens = self.encode(text)
            row[: len(tokens)] = tokens
        return found


def word_piece(vocabulary: RawFile, raw: Path, length: int) -> Tokeniser:
    """BERT's uncased tokeniser; the file has a piece on each line, numbered from 0.

    Raises:
      ConfigError: for an invalid length.
      DataError: if the file is missing or not such a vocabulary.
    """
    check_count("length", length, least=SHORTEST)
    pieces = _lines(vocabulary, raw)
    numbers = {piece: number for number, piece in enumerate(pieces)}
    _check_numbers(vocabulary, numbers.values(), len(pieces))
    _check_has(vocabulary, numbers, SPECIAL)
    tokeniser = BertWordPieceTokenizer(numbers, lowercase=True)
    tokeniser.enable_truncation(length)
    tokens = Tokens(len(numbers), numbers["[PAD]"])
    return Tokeniser(length, tokens, lambda text: tokeniser.encode(text).ids)


def byte_pairs(vocabulary: RawFile, merges: RawFile, raw: Path, length: int) -> Tokeniser:
    """GPT-2's tokeniser.

    Args:
      vocabulary: number of each token, JSON.
      merges: a first line with the version, then on each line two tokens that are merged, in the
        order of learning.
      raw: folder of raw files.
      length: of every text.

    Raises:
      ConfigError: for an invalid length.
      DataError: if a file is missing or invalid.
    """
    check_count("length", length)
    try:
        numbers = json.loads(vocabulary.read(raw))
    except ValueError as error:
        raise DataError(f"{vocabulary.path} is not JSON: {error}") from None
    if not isinstance(numbers, dict) or {*map(type, numbers.values())} != {int}:
        raise DataError(f"{vocabulary.path} is not a vocabulary: it must give tokens their numbers")
    _check_numbers(vocabulary, numbers.values(), len(numbers))
    # A byte without a token would be skipped silently.
    _check_has(vocabulary, numbers, (END, *sorted(ByteLevel.alphabet())))
    tokeniser = ByteLevelBPETokenizer(numbers, _pairs(merges, raw, numbers))
    tokeniser.enable_truncation(length)
    tokens = Tokens(len(numbers), numbers[END])
    return Tokeniser(length, tokens, lambda text: tokeniser.encode(text).ids)


def _pairs(merges: RawFile, raw: Path, numbers: dict[str, int]) -> list[tuple[str, str]]:
    """The pairs of tokens that are merged, in the order of learning."""
    pairs = []
    for line, content in enumerate(_lines(merges, raw)[1:], start=2):
        pair = tuple(content.split(" "))
        if len(pair) != 2 or {*pair, "".join(pair)} - numbers.keys():
            raise DataError(
                f"{merges.path}, line {line}: {content!r} are not two tokens of the vocabulary "
                "that make a third"
            )
        pairs.append(pair)
    return pairs


def _lines(file: RawFile, raw: Path) -> list[str]:
    """The lines of a file, with or without a line feed at its end."""
    try:
        text = file.read(raw).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{file.path} is not UTF-8: {error}") from None
    return text.removesuffix("\n").replace("\r\n", "\n").split("\n")  # no other line ends


def _check_numbers(file: RawFile, numbers: Iterable[int], num: int) -> None:
    if sorted(numbers) != list(range(num)):
        raise DataError(
            f"{file.path} is not a vocabulary: its {num} tokens must have the numbers 0 to "
            f"{num - 1}, each once"
        )


def _check_has(file: RawFile, numbers: dict[str, int], needed: Iterable[str]) -> None:
    missing = [token for token in needed if token not in numbers]
    if missing:
        raise DataError(f"{file.path} is not a vocabulary: it lacks {', '.join(missing[:4])}")
