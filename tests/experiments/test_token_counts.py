from hypothesis import given
from hypothesis import strategies as st

from experiments.records import TokenSource
from experiments.targets.http_tokenizer import ClientTokenizer
from experiments.token_counts import Piece, count_tokens
from tests.fakes.openai_server import TOKENIZER


class Characters:
    """A tokenizer of one token a character, which would put a BOS first if it were let."""

    def encode(self, text):
        return [ord(c) for c in text]

    def ends(self, text):
        return list(range(1, len(text) + 1))


def counted(*pieces, total=None, tokenizer=None):
    return count_tokens(pieces, total=total, tokenizer=tokenizer)


def test_growth_of_usage_comes_before_every_other_source():
    pieces = [
        Piece(text="ab", usage=3, token_ids=(1,), logprobs=1),
        Piece(text="c", usage=8, token_ids=(2,), logprobs=1),
    ]
    found = counted(*pieces, tokenizer=Characters())
    assert (found.tokens, found.source) == ((3, 5), TokenSource.USAGE)
    assert found.retokenised == 3  # kept beside it, to be compared


def test_ids_come_before_log_probabilities_and_these_before_the_text():
    ids = [Piece(text="ab", token_ids=(1, 2), logprobs=9), Piece(text="c", token_ids=(3,))]
    assert counted(*ids, tokenizer=Characters()).source is TokenSource.TOKEN_IDS
    logprobs = [Piece(text="ab", logprobs=1), Piece(text="c", logprobs=4)]
    found = counted(*logprobs, tokenizer=Characters())
    assert (found.tokens, found.source) == ((1, 4), TokenSource.LOGPROBS)


def test_a_source_that_some_text_lacks_is_not_used():
    half = [Piece(text="ab", token_ids=(1, 2), usage=2), Piece(text="c")]
    assert counted(*half, tokenizer=Characters()).source is TokenSource.RETOKENISED
    assert counted(*half).source is TokenSource.ASSUMED


def test_an_empty_piece_whose_usage_grows_is_an_arrival():
    found = counted(Piece(usage=2), Piece(text="abc", usage=5), Piece(usage=5))
    assert found.tokens == (2, 3, 0)


def test_usage_that_grows_after_the_last_arrival_belongs_to_it():
    found = counted(
        Piece(text="a", usage=1), Piece(text="b", usage=2), Piece(usage=3, arrival=False)
    )
    assert found.tokens == (1, 2, 0)


def test_usage_that_falls_is_not_believed():
    found = counted(Piece(text="a", usage=2), Piece(text="b", usage=1), tokenizer=Characters())
    assert found.source is TokenSource.RETOKENISED


def test_usage_at_the_end_alone_does_not_time_tokens():
    found = counted(Piece(text="a"), Piece(text="b"), Piece(usage=6, arrival=False), total=6)
    assert (found.tokens, found.source) == ((3, 3, 0), TokenSource.ASSUMED)


def test_a_text_is_tokenised_as_a_whole_so_a_piece_costs_no_token_of_its_own():
    tokenizer = ClientTokenizer(TOKENIZER)
    text = "The quick brown fox jumps over the lazy dog, again and again."
    whole = len(tokenizer.encode(text))
    for size in (1, 2, 5, len(text)):
        pieces = [Piece(text=text[i : i + size]) for i in range(0, len(text), size)]
        found = counted(*pieces, tokenizer=tokenizer)
        assert sum(found.tokens) == found.retokenised == whole


def test_white_space_and_characters_of_several_bytes_are_counted_once():
    tokenizer = ClientTokenizer(TOKENIZER)
    for text in (" " * 100, "漢字🙂" * 5, "\n\n\t"):
        found = counted(*(Piece(text=c) for c in text), tokenizer=tokenizer)
        assert sum(found.tokens) == len(tokenizer.encode(text))


def test_the_servers_total_wins_over_a_text_that_tokenises_to_less():
    found = counted(Piece(text="ab"), Piece(text="cd"), total=40, tokenizer=Characters())
    assert (found.tokens, found.retokenised) == ((20, 20), 4)


def test_one_a_piece_is_assumed_and_said_where_nothing_is_known():
    found = counted(Piece(text="abc"), Piece(), Piece(text="d"))
    assert (found.tokens, found.source, found.retokenised) == ((1, 0, 1), TokenSource.ASSUMED, None)


@given(
    st.lists(st.text(alphabet="ab é漢", max_size=6), max_size=12), st.none() | st.integers(0, 99)
)
def test_counts_are_never_negative_and_sum_to_the_total_where_there_is_text(texts, total):
    for tokenizer in (None, Characters()):
        found = counted(*(Piece(text=t) for t in texts), total=total, tokenizer=tokenizer)
        assert all(n >= 0 for n in found.tokens)
        if total is not None and any(texts):
            assert sum(found.tokens) == total


@given(
    st.text(alphabet="ab é漢", min_size=1, max_size=40), st.lists(st.integers(1, 5), min_size=40)
)
def test_cutting_a_text_otherwise_changes_no_total(text, sizes):
    pieces, rest = [], text
    for size in sizes:
        pieces.append(Piece(text=rest[:size]))
        rest = rest[size:]
    found = counted(*pieces, Piece(text=rest), tokenizer=Characters())
    assert sum(found.tokens) == len(text)
