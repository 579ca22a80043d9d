"""Texts of yours as tokens: by a file of Hugging Face's `tokenizers`, or by their own words.

Without a file, tokens are the words of the training texts, in lower case and without accents, the
most frequent ones first; all other words are [UNK]. Texts are cut at `length` tokens and filled up.
"""

from collections.abc import Iterable
from pathlib import Path

import tokenizers
from tokenizers.models import WordLevel
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.trainers import WordLevelTrainer

from fedlib.data.checks import check_count
from fedlib.data.tokenisers import Tokeniser
from fedlib.errors import ConfigError, DataError
from fedlib.federation import Tokens

PADDING = ("[PAD]", "<pad>", "<|endoftext|>", "</s>")  # as vocabularies call it
UNKNOWN = "[UNK]"
VOCABULARY = 10_000  # words, unless told otherwise


def tokeniser(
    training: Iterable[str],
    *,
    length: int | None,
    file: str | Path | None = None,
    vocabulary: int | None = None,
) -> Tokeniser:
    """A tokeniser for these texts.

    Args:
      training: the training texts, whose words are the vocabulary without a `file`.
      length: tokens of every text.
      file: as `Tokenizer.save` writes it, such as tokenizer.json.
      vocabulary: most words, without a `file`; None for `VOCABULARY`.

    Raises:
      ConfigError: for an invalid number, or none.
      DataError: for a file that is no such tokeniser, or has no token to fill up texts.
    """
    if length is None:
        raise ConfigError("texts need length, the tokens that each is cut or filled up to")
    check_count("length", length)
    if file is not None and vocabulary is not None:
        raise ConfigError(f"{file} has its vocabulary; leave vocabulary out")
    words = VOCABULARY if vocabulary is None else vocabulary
    found = _of_words(training, words) if file is None else _of_file(Path(file))
    padding = [x for x in map(found.token_to_id, PADDING) if x is not None]
    if not padding:
        raise DataError(f"{file} has none of {', '.join(PADDING)} to fill up short texts")
    found.enable_truncation(length)
    found.no_padding()
    tokens = Tokens(found.get_vocab_size(), padding[0])
    return Tokeniser(length, tokens, lambda text: found.encode(text).ids)


def _of_words(training: Iterable[str], vocabulary: int) -> tokenizers.Tokenizer:
    check_count("vocabulary", vocabulary, least=3)
    found = tokenizers.Tokenizer(WordLevel(unk_token=UNKNOWN))
    found.normalizer = BertNormalizer(lowercase=True)
    found.pre_tokenizer = BertPreTokenizer()
    special = [PADDING[0], UNKNOWN]
    trainer = WordLevelTrainer(vocab_size=vocabulary, special_tokens=special, show_progress=False)
    found.train_from_iterator(training, trainer)
    return found


def _of_file(path: Path) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises this very class
        reason = str(error).splitlines()[0]
        raise DataError(f"{path} is no file of tokenizers, as tokenizer.json: {reason}") from None
