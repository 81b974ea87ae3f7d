"""What a quote of a log shows: its secrets are taken out before it is cut, for half a key is still a secret."""
import pytest

from rlrun.health import signatures as health

TOKEN = "hf_" + "LmN0pQrStUvWxYzAbCdEfGhIjKlM12345"  # 36 characters


def read_leak(text):
    """The longest piece of the token that a text shows, in characters."""
    return next((size for size in range(len(TOKEN), 3, -1) for at in range(len(TOKEN) - size + 1)
                 if TOKEN[at:at + size] in text), 0)


@pytest.mark.parametrize("side", ["before", "after"])
def test_no_piece_of_a_token_is_left_wherever_a_quote_is_cut(side):
    for distance in range(0, 320):
        filler = "x" * distance + " "
        line = "HF_TOKEN=%s %sError: here" % (TOKEN, filler) if side == "before" else "Error: here %s%s more" % (filler, TOKEN)
        data = ("first\n" + line + "\n").encode()
        start = data.index(b"Error")
        shown = health.quote_match(health.Text("a", "/a", data, 0, 1), start, start + 5).text
        assert read_leak(shown) == 0 and "Error" in shown, (distance, shown)
