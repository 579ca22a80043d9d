"""Sentiment140 and Yelp Review Full, on small files of the official layout, and their tokens."""

import numpy as np
import pytest
from data_fixtures import (
    BYTE_PAIRS,
    REAL_RAW,
    WORD_PIECES,
    federation,
    make_up_sent140,
    make_up_yelp,
    needs,
)
from test_text import declared

from fedlib.data import downloads, sources, texts, tokenisers
from fedlib.data.examples import TEST, TRAIN
from fedlib.data.raw import RawFile
from fedlib.data.sources import sent140, yelp
from fedlib.errors import ConfigError, DataError
from fedlib.federation import Tokens
from fedlib.models import transformer
from fedlib.report.metrics import definitions
from fedlib.run.build import build_simulation

PIECE = {piece: number for number, piece in enumerate(WORD_PIECES)}
PAIR = {token: number for number, token in enumerate(BYTE_PAIRS)}
END = PAIR["<|endoftext|>"]


def pieces(words: str, length: int) -> list[int]:
    """Numbers of word pieces between the two ends, filled up."""
    numbers = [PIECE[word] for word in ["[CLS]", *words.split(), "[SEP]"]]
    return numbers + [0] * (length - len(numbers))


def pairs(*tokens: str, length: int) -> list[int]:
    return [PAIR[token] for token in tokens] + [END] * (length - len(tokens))


def written(tmp_path, name: str, content: str | bytes) -> RawFile:
    content = content if isinstance(content, bytes) else content.encode()
    (tmp_path / "texts").mkdir(exist_ok=True)
    (tmp_path / "texts" / name).write_bytes(content)
    return RawFile(f"texts/{name}", None, "")


# Which text it is, its first token tells.
TWEETS = [("0", f"{word} sad") for word in WORD_PIECES[10:20]]
TWEETS += [("4", f"{word} happy") for word in WORD_PIECES[10:20]]
BY_HAND = [("4", "good!"), ("2", "a day"), ("0", "bad"), ("0", "café &amp; sad")]
REVIEWS = [(star, f"{letter}\\n") for star in "12345" for letter in "abcdefgh"]
TESTED = [(star, f'{letter} "bad"') for star in "12345" for letter in "xyz"]


@pytest.fixture
def raw(tmp_path, monkeypatch):
    make_up_sent140(monkeypatch, tmp_path, TWEETS, BY_HAND)
    make_up_yelp(monkeypatch, tmp_path, REVIEWS, TESTED)
    return tmp_path


# -- word pieces -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I am happy!", "i am happy !"),  # lower case; punctuation is a word of its own
        ("The café is SAD.", "the cafe is sad ."),  # no accents
        ("unhappy days", "un ##happy day ##s"),  # the longest beginning first
        ("happyly films zebra", "happy ##ly film ##s [UNK]"),
        ("a\tday\n\x00 is", "a day is"),  # controls are no characters
        ("", ""),
    ],
)
def test_a_text_is_cut_into_the_longest_word_pieces(raw, text, expected):
    vocabulary = downloads.files("sent140")["vocabulary"]
    tokeniser = tokenisers.word_piece(vocabulary, raw, 12)
    assert tokeniser.rows([text], 1).tolist() == [pieces(expected, 12)]
    assert tokeniser.tokens == Tokens(30, 0)
    short = tokenisers.word_piece(vocabulary, raw, 5)
    found = short.rows(["i am not happy", "we", "you you you"], 3)  # each keeps its two ends
    assert found.tolist() == [pieces("i am not", 5), pieces("we", 5), pieces("you you you", 5)]
    assert found.dtype == np.int32


# -- byte pairs ----------------------------------------------------------------------------------


def test_a_text_is_joined_from_bytes_in_the_order_of_the_merges(raw):
    files = [downloads.files("yelp")[key] for key in ("vocabulary", "merges")]
    tokeniser = tokenisers.byte_pairs(*files, raw, 8)
    assert tokeniser.tokens == Tokens(len(BYTE_PAIRS), END)
    found = tokeniser.rows(["good good bad", "Bad gods", ""], 3)
    # A space belongs to the word behind it; "g o" was learned before "o d".
    expected = [
        pairs("good", "Ġgood", "Ġ", "bad", length=8),
        pairs("B", "a", "d", "Ġ", "go", "d", "s", length=8),
        pairs(length=8),
    ]
    assert found.tolist() == expected and found.dtype == np.int32
    short = tokenisers.byte_pairs(*files, raw, 2)
    assert short.rows(["good good bad"], 1).tolist() == [pairs("good", "Ġgood", length=2)]


# -- rows of CSV ----------------------------------------------------------------------------------

LAYOUT = texts.Layout("utf-8", label=0, text=1, classes={"1": 0, "2": None, "3": 1})


def test_rows_without_a_class_are_left_out_and_quotes_and_commas_belong_to_the_text(tmp_path):
    content = '"3","so, ""good"""\n"2","neither"\r\n1,plain\n"1","two\nlines"\n'
    found = texts.read(written(tmp_path, "a.csv", content), tmp_path, LAYOUT)
    assert found.text == ['so, "good"', "plain", "two\nlines"]
    assert found.y.tolist() == [1, 0, 0] and found.y.dtype == np.int64


@pytest.mark.parametrize("content", [b"3\n", b'"4","c"\n', b'"1","caf\xe9"\n'])
def test_a_file_of_another_layout_is_refused(tmp_path, content):
    with pytest.raises(DataError, match="a.csv is not the published file"):
        texts.read(written(tmp_path, "a.csv", content), tmp_path, LAYOUT)


def test_drawn_rows_are_disjoint_random_and_as_many_of_each_class():
    y = np.repeat([0, 1, 2], [40, 50, 60])

    def draw(sizes, seed=0):
        return texts.draw_rows(y, 3, sizes, np.random.default_rng(seed))

    few, many = draw([7, 20])
    assert np.bincount(y[few]).tolist() == [7] * 3 and np.bincount(y[many]).tolist() == [20] * 3
    assert len({*few, *many}) == 3 * 27
    assert (np.diff(y[many]) < 0).any()  # no longer sorted
    few, rest = draw([7, None])
    assert sorted([*few, *rest]) == list(range(150))
    assert not np.array_equal(draw([7], 1)[0], draw([7], 2)[0])
    assert np.array_equal(draw([7], 1)[0], draw([7], 1)[0])
    with pytest.raises(ConfigError, match="class 0 has 40 texts, but 41 are asked for"):
        draw([20, 21])


# -- the two sets of texts ------------------------------------------------------------------------


def read(dataset, raw, seed=0, length=8, **params):
    return sources.load(dataset).read(raw, seed=seed, length=length, **params)


def texts_of(examples, part) -> set[tuple]:
    chosen = examples.part == part
    rows = zip(examples.y[chosen].tolist(), examples.x[chosen].tolist(), strict=True)
    return {(label, *tokens) for label, tokens in rows}


def test_sent140_is_its_tweets_and_those_labelled_by_hand_without_the_neutral_ones(raw):
    found = read("sent140", raw)
    assert texts_of(found, TRAIN) == {(int(y) // 4, *pieces(text, 8)) for y, text in TWEETS}
    tested = {(1, "good !"), (0, "bad"), (0, "cafe & [UNK] ; sad")}  # Latin-1, and as it is
    assert texts_of(found, TEST) == {(y, *pieces(text, 8)) for y, text in tested}
    assert (found.num_train, len(found.y)) == (20, 23)
    assert found.tokens == Tokens(30, 0) and found.x.dtype == np.int32


def test_sent140_may_test_on_training_tweets_that_are_held_out(raw):
    found = read("sent140", raw, train_per_class=6, test_per_class=3)
    train, test = (texts_of(found, part) for part in (TRAIN, TEST))
    assert (len(train), len(test)) == (12, 6) and not train & test
    assert train | test <= {(int(y) // 4, *pieces(text, 8)) for y, text in TWEETS}
    assert np.bincount(found.y).tolist() == [9, 9]


def test_yelp_is_its_reviews_with_line_feeds_as_they_were_written(raw):
    found = read("yelp", raw)
    expected = {(y, *pairs(c, "Ċ", length=8)) for y in range(5) for c in "abcdefgh"}
    assert texts_of(found, TRAIN) == expected  # Ċ is GPT-2's sign for a line feed
    quoted = ("Ġ", '"', "bad", '"')
    expected = {(y, *pairs(c, *quoted, length=8)) for y in range(5) for c in "xyz"}
    assert texts_of(found, TEST) == expected
    assert found.tokens == Tokens(len(BYTE_PAIRS), END) and found.num_classes == 5


@needs("sent140")
@pytest.mark.slow
def test_the_real_tweets_are_as_many_as_their_publishers_say():
    files = downloads.files("sent140")
    train, test = (texts.read(files[k], REAL_RAW, sent140.LAYOUT) for k in ("train", "test"))
    assert np.bincount(train.y).tolist() == [800_000] * 2
    assert np.bincount(test.y).tolist() == [177, 182]
    tokeniser = tokenisers.word_piece(files["vocabulary"], REAL_RAW, 64)
    assert tokeniser.tokens == Tokens(*transformer.SIZES["bert-base"][4:7:2])


@needs("yelp")
@pytest.mark.slow
def test_the_real_reviews_are_as_many_as_their_publishers_say():
    files = downloads.files("yelp")
    train, test = (texts.read(files[k], REAL_RAW, yelp.LAYOUT) for k in ("train", "test"))
    assert np.bincount(train.y).tolist() == [130_000] * 5
    assert np.bincount(test.y).tolist() == [10_000] * 5
    tokeniser = tokenisers.byte_pairs(files["vocabulary"], files["merges"], REAL_RAW, 64)
    assert tokeniser.tokens == Tokens(*transformer.SIZES["gpt2-medium"][4:7:2])
    assert tokeniser.rows(["Hello world"], 1)[0, :2].tolist() == [15496, 995]


# -- clients of texts ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dataset", "model"),
    [
        ("sent140", {"num_classes": 2, "size": "bert-lite", "vocabulary": 30, "pad": 0}),
        ("yelp", {"num_classes": 5, "size": "gpt2-lite", "vocabulary": 263, "pad": END}),
    ],
)
def test_texts_know_their_tokens_and_a_transformer_takes_steps_on_them(dataset, model, raw):
    cut = {"num_clients": 2, "train_examples": 4, "share": 0.5}
    cut |= {"pool_per_class": 4, "server_per_class": 1, "val_per_class": 1}
    built = federation(dataset, "server_majority", raw, params={"length": 8}, **cut)
    assert built.tokens == Tokens(model["vocabulary"], model["pad"])
    # All texts differ, and so do those of the same words and another class.
    assert len({(y, *x) for x, y in zip(built.x, built.y, strict=True)}) == len(built.y)
    _, result = build_simulation(declared(model_params=model), built).run(report=lambda line: None)
    assert result.examples.tolist() == [0, 8]  # two clients with four
    assert result.scores[definitions.SERVER].count.tolist() == [built.test.sizes.sum()]
