"""What a quote of a log shows: its secrets are taken out before it is cut, for half a key is still a secret."""
import pytest

from rlrun.health import signatures as health
from rlrun.vitals import Rule

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


@pytest.mark.parametrize("distance", list(range(60, 180, 7)) + [99, 100, 101, 139, 140, 141])
def test_no_piece_of_a_known_secret_is_left_either(distance):
    secret = "correct-horse-battery-99"
    for line in ("%s %s Error: x" % (secret, "y" * distance), "Error: x %s %s" % ("y" * distance, secret)):
        data = line.encode()
        start = data.index(b"Error")
        shown = health.quote_match(health.Text("a", "/a", data, 0, 1), start, start + 5, (secret,)).text
        assert not any(secret[at:at + 6] in shown for at in range(len(secret) - 5)), shown


def test_a_finding_on_lines_hides_the_secrets_that_are_known():
    log = health.Text("train", "/x/e.log", b"login hunter2hunter2 died\n", 0, 1)
    evidence = health.Evidence({}, {"train": log}, "train", lambda *place: None, ("hunter2hunter2",))
    quoted, = health.prove_rule(Rule("died", "lines"), evidence)
    assert quoted.text == "login <redacted> died"
