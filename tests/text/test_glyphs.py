import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlrun.text import glyphs

ENCODINGS = ["utf-8", "ascii", "ANSI_X3.4-1968", "latin-1", "cp1252", "utf-16", "koi8-r", "euc-jp", "no-such", "hex", ""]


def test_what_the_stream_can_take_is_unchanged():
    assert glyphs.to_stream_text("✓ Läuf · ▎", "utf-8") == "✓ Läuf · ▎"
    assert glyphs.to_stream_text("plain", "ascii") == "plain"


def test_glyphs_become_stand_ins_and_the_rest_escapes():
    """E3: cron's ASCII stdout, an experiment name with an umlaut, a log's progress bar."""
    assert glyphs.to_stream_text("✗ gpu → x — Läuf …", "ascii") == "x gpu -> x - L\\xe4uf ..."
    assert glyphs.to_stream_text("✓ ü", "latin-1") == "+ ü"
    assert glyphs.to_stream_text("😀", "ascii") == "\\U0001f600"


def test_a_file_name_that_is_no_utf8_shows_its_byte():
    assert glyphs.to_stream_text("✓ caf\udce9", "utf-8") == "✓ caf\\xe9"


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(text=st.text(st.characters(), max_size=60))
def test_never_raises_and_always_fits(encoding, text):
    shown = glyphs.to_stream_text(text, encoding)
    shown.encode(encoding if encoding not in ("no-such", "hex", "") else "ascii")


def test_every_stand_in_is_ascii():
    for stand_in in glyphs.STAND_INS.values():
        stand_in.encode("ascii")
