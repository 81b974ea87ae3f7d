"""The glyphs of the reports and their ASCII stand-ins; what a stream can't take is escaped. Writes nothing itself."""
from typing import Dict

PASS = "\u2713"  # check mark
ADVISORY = "\u26a0"  # warning sign
BLOCKS = "\u2717"  # ballot cross
SKIPPED = "\u00b7"  # middle dot, also between words
ARROW = "\u2192"
DOUBLE_RULE = "\u2550"
RULE = "\u2500"
TIMES = "\u00d7"
BULLET = "\u2022"
REFUSED = "\u2298"  # circled slash, the runner's SKIP
ELLIPSIS = "\u2026"
BAR = "\u2502"
DASH = "\u2014"
SPARKS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"  # one eighth to full

# A stand-in keeps its meaning when it stands alone; columns shift only where one glyph takes two letters.
STAND_INS: Dict[str, str] = {
    PASS: "+", "\u2714": "+", ADVISORY: "!", BLOCKS: "x", "\u2718": "x", SKIPPED: "-", ARROW: "->", "\u2190": "<-",
    "\u21d2": "=>", DOUBLE_RULE: "=", RULE: "-", "\u2501": "-", TIMES: "x", BULLET: "*", REFUSED: "o", ELLIPSIS: "...",
    BAR: "|", "\u2503": "|", "\u2514": "`", "\u251c": "|", "\u250c": "+", "\u2510": "+", "\u2518": "+", "\u2524": "|",
    DASH: "-", "\u2013": "-", "\u2212": "-", "\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"',
    "\u2264": "<=", "\u2265": ">=", "\u2260": "!=", "\u2248": "~", "\u00b1": "+-", "\u00b5": "u", "\u03bc": "u",
    "\u00a0": " ", "\ufe0f": "",
    "\u2591": ".", "\u2592": ":", "\u2593": "%",
    "\u258f": "|", "\u258e": "|", "\u258d": "|", "\u258c": "#", "\u258b": "#", "\u258a": "#", "\u2589": "#",
}
STAND_INS.update(zip(SPARKS, "_.-=+*%#"))


def to_stream_text(text: str, encoding: str) -> str:
    """Takes any text and the name of a stream's encoding; gives text that this encoding can take.

    Unchanged where it fits; else each character that does not becomes its stand-in or a backslash escape, a byte that
    was not decodable (a surrogate) `\\xNN`. Never raises; an encoding that Python does not know counts as ASCII.
    """
    if _can_take(encoding, text):
        return text
    if not _can_take(encoding, "a"):
        encoding = "ascii"
    table: Dict[int, str] = {}
    for character in set(text):
        if not _can_take(encoding, character):
            stand_in = STAND_INS.get(character)
            table[ord(character)] = escape_character(character) if stand_in is None else stand_in
    return text.translate(table)


def escape_character(character: str) -> str:
    """`\\x1b`, `\\u202e`, `\\U0001f600`; an undecodable byte as that byte; \\n, \\r and \\t by their letter."""
    number = ord(character)
    if 0xDC80 <= number <= 0xDCFF:  # how os.fsdecode keeps a byte that is no UTF-8
        number -= 0xDC00
    if number <= 0xFF:
        return {9: "\\t", 10: "\\n", 13: "\\r"}.get(number, "\\x%02x" % number)
    return "\\u%04x" % number if number <= 0xFFFF else "\\U%08x" % number


def _can_take(encoding: str, text: str) -> bool:
    try:
        text.encode(encoding)
    except (LookupError, ValueError, TypeError):  # UnicodeEncodeError is a ValueError
        return False
    return True
