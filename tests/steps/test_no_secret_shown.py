"""No piece of a secret is left in what `status` shows, wherever in a line it stands and a quote is cut."""
import pytest
from steps.made_runs import look_at, prime_step, steps

from rlrun.commands import status as status_command

TOKEN = "hf_" + "LmN0pQrStUvWxYzAbCdEfGhIjKlM12345"  # 36 characters
PHRASE = "correct-horse/battery.staple~9973-x"
LINES = {
    "error": "12:00:01 ERROR could not log in %s\n",
    "traceback": "Traceback (most recent call last):\n  File \"x\", line 1\nValueError: no %s\n",
    "killed": "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-08-02T11:59:59 DUE TO TIME LIMIT *** %s\n",
    "stopped": "%s Detected termination signal (None) %s\n", "stage": "[WORKER] waiting for head %s\n",
    "level": "%s 12:00:01 ERROR something is wrong here\n"}


def find_piece(text, secret, least=6):
    """A piece of the secret that is shown; from the middle on, for its first letters tell but what kind it is."""
    return next((secret[at:at + least] for at in range(4, len(secret) - least + 1) if secret[at:at + least] in text), "")


def read_all(status):
    quotes = list(status.errors) + [quote for one in status.findings for quote in one.quotes]
    if status.ending is not None:
        quotes += [status.ending.first_error] if status.ending.first_error else []
    words = [status.conclusion, status.stage] + [one.words for one in status.findings]
    words += status.recommendations + status.notes
    return " | ".join([quote.text for quote in quotes] + words)


@pytest.mark.parametrize("name", sorted(LINES))
@pytest.mark.parametrize("secret", [TOKEN, PHRASE], ids=["token", "phrase"])
@pytest.mark.parametrize("state", ["live", "over"])
def test_nothing_of_a_secret_is_shown_wherever_it_stands(tmp_path, monkeypatch, name, secret, state):
    monkeypatch.setenv("DB_PASSWORD", PHRASE)
    leaks = []
    for distance in list(range(0, 12)) + list(range(40, 280, 5)):
        filler = "x" * distance
        before, after = secret + " " + filler, filler + " " + secret
        line = LINES[name] % ((before, after) if name == "stopped" else (before if name == "level" else after,))
        text = line if name == "stage" else steps(3) + line
        found, _ = look_at(tmp_path, text, 5, state, exit={"status": 1, "signal": None} if state == "over" else None)
        piece = find_piece(read_all(status_command.hide_secrets(found)), secret)
        leaks += [(distance, piece)] if piece else []
    assert leaks == []


@pytest.mark.parametrize("secret", [TOKEN, PHRASE], ids=["token", "phrase"])
@pytest.mark.parametrize("side", ["before", "after"])
def test_nor_beside_what_a_signature_matched(tmp_path, monkeypatch, secret, side):
    monkeypatch.setenv("DB_PASSWORD", PHRASE)
    leaks = []
    for distance in range(0, 200, 3):
        words = [secret + " " + "x" * distance, ""] if side == "before" else ["", "x" * distance + " " + secret]
        line = "12:00:00 %s CheckpointException %s\n" % tuple(words)
        text = "".join(map(prime_step, range(90, 101))) + line
        found, _ = look_at(tmp_path, text, 5, stack="prime", kind="rl")
        assert [one.name for one in found.findings] == ["ckpt:errors"]
        piece = find_piece(read_all(status_command.hide_secrets(found)), secret)
        leaks += [(distance, piece)] if piece else []
    assert leaks == []
