"""From texts to tokens: by published files of BERT or GPT-2, or by a user's file or words.

    word_piece  lower case without accents; [CLS] pieces of words [SEP], filled up with [PAD]
    byte_pairs  case and accents kept, a token for every byte; filled up with the end of text
    of_texts    a file of Hugging Face's `tokenizers`; or the words of the training texts, in lower
                case and without accents, the most frequent ones first, all others [UNK]

All cut a text at `length` tokens, which include the marks of its ends.

Source: J. Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language
  Understanding", NAACL 2019; A. Radford et al., "Language Models are Unsupervised Multitask
  Learners", 2019. The package `tokenizers` computes them, here one text at a time: a job has one
  core, and a batch would keep more of each text than its tokens.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tokenizers
from tokenizers.implementations import BertWordPieceTokenizer, ByteLevelBPETokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.trainers import WordLevelTrainer

from fedlib.data.checks import validate
from fedlib.data.raw import RawFile
from fedlib.errors import ConfigError, DataError, brief, quote
from fedlib.federation import Tokens

PADDING = ("[PAD]", "<pad>", "<|endoftext|>", "</s>")  # as vocabularies call it
UNKNOWN = "[UNK]"
VOCABULARY = 10_000  # words, with [PAD] and [UNK]


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
        """`num` texts -> [num, length] int32

        Raises:
          DataError: for a text that a user's tokeniser cannot encode, such as an unknown word if it
            has no token for these.
        """
        found = np.full((num, self.length), self.tokens.pad, np.int32)
        for row, text in zip(found, texts, strict=True):
            try:
                tokens = self.encode(text)
                row[: len(tokens)] = tokens
            except Exception as error:  # of the package; or the text has more tokens than length
                raise DataError(f"the tokeniser refuses the text {quote(text)}: {error}") from None
        return found


def word_piece(vocabulary: RawFile, raw: Path, length: int) -> Tokeniser:
    """BERT's uncased tokeniser; the file has a piece on each line, numbered from 0.

    Raises:
      DataError: if the file is missing or not the official one.
    """
    path = str(vocabulary.locate(raw))
    return _cutter(BertWordPieceTokenizer.from_file(path, lowercase=True), length)


def byte_pairs(vocabulary: RawFile, merges: RawFile, raw: Path, length: int) -> Tokeniser:
    """GPT-2's tokeniser.

    Args:
      vocabulary: number of each token, JSON.
      merges: a first line with the version, then on each line two tokens that are merged, in the
        order of learning.
      raw: folder of raw files.
      length: of every text.

    Raises:
      DataError: if a file is missing or not the official one.
    """
    paths = [str(file.locate(raw)) for file in (vocabulary, merges)]
    return _cutter(ByteLevelBPETokenizer.from_file(*paths), length)


def of_texts(
    training: Iterable[str], *, length: int | None, file: str | Path | None = None
) -> Tokeniser:
    """A tokeniser for texts of a user's.

    Args:
      training: the training texts, whose `VOCABULARY` most frequent words count without a `file`.
      length: tokens of every text.
      file: as `Tokenizer.save` writes it, such as tokenizer.json.

    Raises:
      ConfigError: for an invalid number, or none.
      DataError: for a file that is no such tokeniser, or has no token to fill up texts.
    """
    if length is None:
        raise ConfigError("texts need length, the tokens that each is cut or filled up to")
    length = validate("length", length, int)
    if file is None:
        return _cutter(_of_words(training), length)
    try:
        found = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the package raises this very class
        told = f"{file} is no file of tokenizers, as tokenizer.json: {brief(error)}"
        raise DataError(told) from None
    if not any(found.token_to_id(name) is not None for name in PADDING):
        raise DataError(f"{file} has none of {', '.join(PADDING)} to fill up short texts")
    return _cutter(found, length)


def _of_words(training: Iterable[str]) -> tokenizers.Tokenizer:
    found = tokenizers.Tokenizer(WordLevel(unk_token=UNKNOWN))
    found.normalizer = BertNormalizer(lowercase=True)
    found.pre_tokenizer = BertPreTokenizer()
    special = [PADDING[0], UNKNOWN]
    trainer = WordLevelTrainer(vocab_size=VOCABULARY, special_tokens=special, show_progress=False)
    found.train_from_iterator(training, trainer)
    return found


def _cutter(found: Any, length: int) -> Tokeniser:
    """A tokeniser of the package that cuts texts; the first of `PADDING` that it has fills up."""
    found.enable_truncation(length)
    found.no_padding()
    padding = (found.token_to_id(name) for name in PADDING)
    # Not the number of tokens: a vocabulary may leave some numbers out.
    tokens = Tokens(max(found.get_vocab().values()) + 1, next(x for x in padding if x is not None))
    return Tokeniser(length, tokens, lambda text: found.encode(text).ids)
