"""What the HTML pages are put together from: escaped text, marks, quotes, the document around them. Knows nothing of runs."""
import calendar
import html
import math
import re
import time
from typing import Any, Iterable, List, Optional, Tuple

from .page_style import STYLE
from .shell import escape_controls

# Nothing is loaded, from wherever, and no script runs: not even where a value should escape its quotes.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

# Drawn, so that they look alike everywhere: a font may lack a sign, or show it as a coloured picture.
_MARKS = (
    ("good", '<circle cx="8" cy="8" r="7"/><path d="M4.8 8.3l2.3 2.3 4.2-4.8"/>'),
    ("warn", '<path d="M8 1.6L15 14H1z"/><path d="M8 6.2v3.6M8 11.8v.1"/>'),
    ("bad", '<path d="M5.1 1h5.8L15 5.1v5.8L10.9 15H5.1L1 10.9V5.1z"/><path d="M5.6 5.6l4.8 4.8M10.4 5.6l-4.8 4.8"/>'),
    ("calm", '<circle cx="8" cy="8" r="7"/><path d="M5.2 8h5.6"/>'),
)
# <small>, </code>
_TAGS = re.compile("<[^>]*>")
TONES = tuple(name for name, _ in _MARKS)


def escape(value: Any, keep: str = "") -> str:
    """Takes any value; gives text that is safe between tags and in a quoted attribute, controls shown as `\\x1b`; None is
    "". Characters in `keep` are no controls."""
    return "" if value is None else html.escape(escape_controls(str(value), keep), quote=True)


def draw_mark(tone: str) -> str:
    """The sign of a tone (see TONES): a shape that tells it without colour. Words must stand beside it."""
    return '<svg class="mark %s" aria-hidden="true"><use href="#%s"/></svg>' % (tone, tone)


def read_number(value: Any) -> Optional[float]:
    """Takes a number of the JSON object, where nan and inf are words; gives a float, None where it is no number."""
    if value is None or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except (TypeError, ValueError):
        return None


def format_number(value: Optional[float], digits: int = 6) -> str:
    """`0.25`, `1e-06`, `12345678`, `NaN`, `inf`: so many significant digits, a whole number whole; "not told" for None."""
    if value is None:
        return "not told"
    if math.isnan(value):
        return "NaN"
    if abs(value) < 1e9 and (value == int(value) or abs(value) >= 10 ** digits):
        return "%.0f" % value
    return "%.*g" % (digits, value)


def format_utc(seconds: Optional[float]) -> str:
    """`2026-11-29 12:00 UTC`; "unknown" for what is no time."""
    try:
        return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds if seconds is not None else math.nan))
    except (ValueError, OverflowError, OSError):  # a year that the C library does not take
        return "unknown"


def parse_utc(stamp: Any) -> Optional[float]:
    """`2026-11-29T12:00:00Z` as seconds since the epoch; None for anything else."""
    try:
        return float(calendar.timegm(time.strptime(stamp, "%Y-%m-%dT%H:%M:%SZ")))
    except (ValueError, TypeError, OverflowError):
        return None


def render_code(value: Any) -> str:
    """A name, path or key as it is written elsewhere, to be copied; "" where there is none."""
    return "<code>%s</code>" % escape(value) if value not in (None, "") else ""


def render_block(text: str, label: str) -> str:
    """Text whose lines and columns matter. It scrolls by itself, by keyboard too, so that the page need not."""
    return '<pre class="block" tabindex="0" role="region" aria-label="%s"><code>%s</code></pre>' % (
        escape(label), escape(text.expandtabs(), "\n"))


def render_pairs(pairs: Iterable[Tuple[str, str]], style: str) -> str:
    """A list of names and values; the values are HTML, those that are "" are left out. One that holds a path gets more room."""
    rows = ["<div%s><dt>%s</dt><dd>%s</dd></div>" % (' class="long"' if "/" in _TAGS.sub("", value) else "", escape(name), value)
            for name, value in pairs if value]
    return '<dl class="%s">%s</dl>' % (style, "".join(rows)) if rows else ""


def render_list(lines: Iterable[Any], tag: str) -> str:
    """A list of plain lines; tag is `ol` or `ul`. "" for none."""
    rows = "".join("<li>%s</li>" % escape(line) for line in lines)
    return '<%s class="advice">%s</%s>' % (tag, rows, tag) if rows else ""


def render_section(name: str, title: str, body: str, style: str = "card") -> str:
    """A part of the page under a heading of its own; "" where its body is."""
    if not body:
        return ""
    return '<section class="%s" aria-labelledby="%s"><h2 id="%s">%s</h2>\n%s</section>\n' % (style, name, name, title, body)


def render_table(caption: str, heads: Iterable[str], groups: Iterable[Tuple[str, List[str]]], style: str) -> str:
    """A table; each group is a heading ("" for none) and its rows, which are HTML."""
    heads = list(heads)
    # The roles are said aloud because a phone lays the rows out as blocks, which would take the table's meaning away.
    bodies = []
    for title, rows in groups:
        top = '<tr class="group" role="row"><th scope="rowgroup" role="rowheader" colspan="%d">%s</th></tr>\n' % (
            len(heads), escape(title)) if title else ""
        bodies.append('<tbody role="rowgroup">%s%s</tbody>' % (
            top, "".join('<tr role="row">%s</tr>\n' % row for row in rows)))
    columns = "".join('<th scope="col" role="columnheader">%s</th>' % escape(head) for head in heads)
    top = '<caption>%s</caption>\n<thead role="rowgroup"><tr role="row">%s</tr></thead>' % (escape(caption), columns)
    return '<table class="%s" role="table">%s\n%s</table>' % (style, top, "\n".join(bodies))


def render_cell(content: str, style: str = "") -> str:
    """One cell of a row, from HTML."""
    return '<td role="cell"%s>%s</td>' % (' class="%s"' % style if style else "", content)


def render_head_cell(content: str) -> str:
    """The cell that names its row, from HTML."""
    return '<th scope="row" role="rowheader">%s</th>' % content


def render_document(title: str, header: str, main: str, footer: str) -> str:
    """One whole page; all but the title is HTML. It asks for nothing from anywhere."""
    marks = "".join('<symbol id="%s" viewBox="0 0 16 16"><g fill="none" stroke="currentColor" stroke-width="1.6" '
                    'stroke-linecap="round" stroke-linejoin="round">%s</g></symbol>' % mark for mark in _MARKS)
    return """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="generator" content="rlrun">
<meta http-equiv="Content-Security-Policy" content="%s">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<meta name="format-detection" content="telephone=no">
<title>%s</title>
<style>
%s</style>
</head>
<body>
<svg width="0" height="0" style="position:absolute" aria-hidden="true">%s</svg>
<div class="wrap">
<header>%s</header>
<main>
%s</main>
<footer>%s</footer>
</div>
</body>
</html>
""" % (escape(_POLICY), escape(title), STYLE, marks, header, main, footer)
