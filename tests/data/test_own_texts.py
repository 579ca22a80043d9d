"""Texts, tokens and signals of a user's own, in the library and in the workflow's files."""

import numpy as np
import pandas as pd
import pytest
import tokenizers
import torch
from torch import nn

import fedlib
from fedlib.data import tokenisers
from fedlib.data.examples import TEST, TRAIN
from fedlib.data.sources import own
from fedlib.errors import ConfigError, DataError
from fedlib.models import constant, transformer

TEXTS = ["The sun is good", "a BAD day", "good, good Sun", "so bad"]
TEXTS += ["Good day", "bad sun", "good news", "bad luck"]
LABELS = [1, 0, 1, 0, 1, 0, 1, 0]
CLIENTS = ["ann", "bob"] * 4


def test_tokens_are_the_most_frequent_words_of_the_training_texts():
    made = tokenisers.of_texts(["b b a", "a a, C"], length=4)
    # [PAD], [UNK], then by frequency and alphabet: a 3, b 2, "," before c.
    assert made.tokens == (6, 0)
    rows = made.rows(["d B , c", "a a a a a", ""], 3)
    assert rows.tolist() == [[1, 3, 4, 5], [2, 2, 2, 2], [0, 0, 0, 0]]


def saved(folder, padding="[PAD]"):
    """A file of `tokenizers`: each letter is a token; no token has the number 1."""
    letters = {padding: 0} | {letter: i for i, letter in enumerate("abcdefghij", 2)}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=letters, merges=[]))
    made.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


def test_a_file_of_tokenizers_gives_its_tokens(tmp_path):
    made = tokenisers.of_texts([], length=3, file=saved(tmp_path))
    assert made.tokens == (12, 0)
    assert made.rows(["cab", "jihg", "a"], 3).tolist() == [[4, 2, 3], [11, 10, 9], [2, 0, 0]]


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"length": None}, ConfigError, "texts need length"),
        ({"length": 0}, ConfigError, "length must be"),
        ({"length": 3, "file": "absent.json"}, DataError, "absent.json is no file of tokenizers"),
    ],
)
def test_settings_of_texts_that_make_no_sense_are_refused(given, error, message):
    with pytest.raises(error, match=message):
        tokenisers.of_texts(TEXTS, **given)


def test_a_file_needs_padding(tmp_path):
    file = saved(tmp_path, padding="a nameless one")
    with pytest.raises(DataError, match="none of .*PAD.* to fill up"):
        tokenisers.of_texts(TEXTS, length=3, file=file)


def test_a_text_that_a_tokeniser_cannot_encode_is_named(tmp_path):
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[PAD]": 0, "a": 1}))  # no [UNK]
    words.save(str(tmp_path / "tokenizer.json"))
    made = tokenisers.of_texts([], length=3, file=tmp_path / "tokenizer.json")
    with pytest.raises(DataError, match="the tokeniser refuses the text 'b': .*UNK"):
        made.rows(["a", "b"], 2)


# -- in the library -----------------------------------------------------------------------


class OfWords(nn.Module):
    """The mean of the words' vectors, without any conversion of its inputs."""

    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(50, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.words(x).mean(1))


def trained(clients, model, **more):
    settings = {"local": fedlib.SGD(lr=0.5, batch_size=4), "rounds": 3, "progress": None}
    return fedlib.simulate(clients, model, **settings | more)


@pytest.mark.parametrize("kind", [list, np.array, "frame"])
def test_texts_become_tokens_that_an_embedding_reads(kind):
    given = pd.Series(TEXTS) if kind == "frame" else kind(TEXTS)
    test = (given[:2], LABELS[:2], CLIENTS[:2])
    clients = fedlib.partition(given, LABELS, "natural", client=CLIENTS, test=test, length=5)
    assert clients.x.shape == (10, 5) and clients.x.dtype == np.int32 and clients.tokens.pad == 0
    assert clients.called == ["ann", "bob"]
    result = trained(clients, OfWords(), method="fedem", num_experts=2)
    assert result.client_model("ann")(torch.from_numpy(clients.x)).shape == (10, 2)


def test_whole_numbers_stay_whole_and_columns_of_a_frame_do_not():
    tokens = np.arange(32).reshape(8, 4)
    for given in (tokens, tokens.astype(np.int32), torch.from_numpy(tokens), tokens.tolist()):
        clients = fedlib.partition(given, LABELS, "iid", num_clients=2, seed=1)
        assert clients.x.dtype == np.int64 and clients.tokens == (32, 0)
    trained(clients, OfWords())
    trained(clients, constant.build(2))  # reads none of them
    with pytest.raises(DataError, match=r"x of example 1 must be a text, .* UTF-8 .*'a.ud83d'"):
        fedlib.partition(["a", "a\ud83d", *TEXTS[2:]], LABELS, "iid", num_clients=2, length=4)
    with pytest.raises(ConfigError, match="integers stay integers: are they tokens"):
        trained(clients, nn.Linear(4, 2))
    frame = fedlib.partition(pd.DataFrame(tokens), LABELS, "iid", num_clients=2, seed=1)
    assert frame.x.dtype == np.float32
    with pytest.raises(DataError, match="integers from 0"):
        fedlib.partition(-tokens, LABELS, "iid", num_clients=2)
    with pytest.raises(ConfigError, match="length is for texts"):
        fedlib.partition(tokens, LABELS, "iid", num_clients=2, length=4)


def test_signals_stay_what_they_are_where_the_user_says_so():
    x = np.random.default_rng(0).normal(size=(16, 3, 9)).astype(np.float32)
    pairs = [(x[:8], LABELS), (x[8:], LABELS)]
    made = fedlib.Federation.from_arrays(pairs, pairs, signals=True)
    assert made.x.shape == (32, 3, 9)
    assert fedlib.Federation.from_arrays(pairs, pairs).x.shape == (32, 1, 3, 9)
    model = nn.Sequential(nn.Conv1d(3, 4, 3), nn.Flatten(), nn.Linear(28, 2))
    assert trained(made, model).client_model(0)(x[:5]).shape == (5, 2)


# -- in the workflow's files --------------------------------------------------------------


def folder(raw, lines, name="reviews"):
    (raw / "own" / name).mkdir(parents=True)
    (raw / "own" / name / "all.csv").write_text("\n".join(lines))
    return raw / "own" / name


ROWS = [f'{c},"{t}",{y}' for c, t, y in zip(CLIENTS, TEXTS, LABELS, strict=True)]
CSV = ["client,text,label", *ROWS]


def test_a_csv_file_of_texts_is_read(tmp_path):
    folder(tmp_path, CSV)
    examples = own.read(tmp_path, source="reviews", length=4)
    assert examples.x.shape == (8, 4) and examples.y.tolist() == LABELS
    assert examples.owner_name.tolist() == ["ann", "bob"]
    # The fourth text of a client tests, and its words alone are no part of the vocabulary.
    assert examples.part.tolist() == [TRAIN] * 6 + [TEST] * 2
    training = {word.strip(",").lower() for text in TEXTS[:6] for word in text.split()}
    assert examples.tokens.vocabulary == len(training | {"[PAD]", "[UNK]", ","})
    size = {"vocabulary": examples.tokens.vocabulary, "pad": 0, "max_length": 4}
    model = transformer.build(2, "bert-lite", **size).eval()
    assert model(torch.from_numpy(examples.x)).shape == (8, 2)


def test_a_text_or_a_column_may_be_a_word_for_what_is_missing(tmp_path):
    folder(tmp_path, ["Text,label", "NA,0", "null,1"], "texts")
    folder(tmp_path, ["NA,label", "1,0", "2,1"], "numbers")
    assert own.read(tmp_path, source="texts", length=3).x[:, 0].tolist() == [2, 3]
    assert own.read(tmp_path, source="numbers").column_name.tolist() == ["na"]


def test_the_tokeniser_of_a_folder_is_taken(tmp_path):
    saved(folder(tmp_path, CSV))
    assert own.read(tmp_path, source="reviews", length=4).tokens == (12, 0)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["text,size,label", "a,1,0", "b,2,1"], "text or columns of numbers .* has size"),
        (["client,label", "a,1"], "text or columns of numbers .* has none"),
        (["text,label", ",1", "b,0"], "x of example 0 must be a text"),
    ],
)
def test_files_that_mix_texts_and_numbers_are_refused(tmp_path, lines, message):
    folder(tmp_path, lines)
    with pytest.raises(DataError, match=message):
        own.read(tmp_path, source="reviews", length=4)
