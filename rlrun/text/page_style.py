"""The look of the HTML pages: one style sheet, written into each. It fetches nothing: no font, no image, no import."""

STYLE = """\
/* The look of the pages: no font, image or script is fetched. Every pair of colours that text stands in has a contrast of
   4.5 or more, which tests/text/test_page.py measures. */
:root {
  color-scheme: light dark;
  --page: #f5f6f8; --card: #ffffff; --sunk: #f0f2f5; --line: #dde1e7; --grid: #e6e9ee;
  --text: #1b2026; --muted: #576170; --curve: #2459a8;
  --good: #17663a; --warn: #865000; --bad: #b0231c; --calm: #43505f;
  --good-tint: #e6f4ec; --warn-tint: #fdf2dd; --bad-tint: #fdeceb; --calm-tint: #eaeef3;
  --mono: ui-monospace, "SF Mono", SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --page: #121518; --card: #1a1e23; --sunk: #13171b; --line: #323a43; --grid: #2a3138;
    --text: #e4e8ec; --muted: #9ca7b4; --curve: #82b1f4;
    --good: #74cf9c; --warn: #f0b860; --bad: #ff8f86; --calm: #b4bfcb;
    --good-tint: #16291e; --warn-tint: #2e2413; --bad-tint: #361d1c; --calm-tint: #232a32;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body {
  margin: 0; background: var(--page); color: var(--text); font-size: 1rem; line-height: 1.5; overflow-wrap: anywhere;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", Arial, sans-serif;
  font-variant-numeric: tabular-nums;
}
.wrap { max-width: 76rem; margin: 0 auto; padding: 2rem 1.25rem 2.5rem; }
.wrap > *, main > * { margin: 0 0 1.25rem; }
h1 { margin: 0; font-size: 1.6rem; line-height: 1.25; font-weight: 650; letter-spacing: -0.01em; }
h2 { margin: 0 0 .75rem; font-size: 1.05rem; line-height: 1.35; font-weight: 650; }
h3 { margin: 0; font-size: 1rem; line-height: 1.4; font-weight: 600; }
p, ol, ul, dl, figure, blockquote, pre { margin: 0; }
code, pre { font-family: var(--mono); font-size: .86em; }
small code, figcaption code { font-size: .95em; }
code { unicode-bidi: isolate; }
.muted, .eyebrow, dt, figcaption, footer { color: var(--muted); }
.eyebrow { font-size: .9rem; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: 1.1rem 1.25rem; }
.mark { width: 1em; height: 1em; flex: none; vertical-align: -.125em; margin-right: .4em; }
.good { color: var(--good); } .warn { color: var(--warn); } .bad { color: var(--bad); } .calm { color: var(--calm); }

/* facts: a name above its value, as many beside each other as there is room for */
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(11.5rem, 1fr)); gap: .8rem 1.5rem; }
.facts .long { grid-column: span 2; }
.facts dt { font-size: .82rem; }
.facts dd { margin: 0; }
.facts small { display: block; color: var(--muted); font-size: .82rem; line-height: 1.4; }
header .facts { margin-top: 1rem; }
.places { display: grid; grid-template-columns: minmax(6rem, max-content) minmax(0, 1fr); gap: .3rem 1.25rem; }
.places > div { display: contents; }
.places dd { margin: 0; }

.verdict { border-left: .4rem solid currentColor; }
.verdict h2 { font-size: 1.3rem; margin: 0; }
.verdict p { color: var(--text); margin-top: .25rem; }
.verdict.good { background: var(--good-tint); } .verdict.warn { background: var(--warn-tint); }
.verdict.bad { background: var(--bad-tint); } .verdict.calm { background: var(--calm-tint); }
.advice { padding-left: 1.6rem; }
.advice li + li { margin-top: .35rem; }
.advice li::marker { color: var(--muted); }

.bar { display: block; width: 100%; height: .75rem; margin: 0 0 1rem; border-radius: .375rem; background: var(--calm-tint); }
.bar rect { fill: var(--curve); }

.stacked > p + *, .stacked > dl + *, .stacked > figure + * { margin-top: .8rem; }
.finding + .finding { margin-top: 1.1rem; padding-top: 1.1rem; border-top: 1px solid var(--line); }
.finding h3 + p { margin-top: .2rem; }
.finding > * + .advice { margin-top: .6rem; }
.quote { margin-top: .6rem; padding: .55rem .8rem; background: var(--sunk); border-radius: .25rem;
  border-left: 3px solid var(--line); }
.quote code { white-space: pre-wrap; }
.quote figcaption { font-size: .82rem; margin-top: .2rem; }

table { width: 100%; border-collapse: collapse; font-size: .94rem; }
caption { text-align: left; color: var(--muted); font-size: .88rem; padding-bottom: .5rem; }
th { text-align: left; font-weight: 600; }
thead th { color: var(--muted); font-size: .82rem; font-weight: 500; padding: 0 1rem .4rem 0; }
tbody th, tbody td { padding: .45rem 1rem .45rem 0; vertical-align: top; border-top: 1px solid var(--line); }
tbody th { width: 36%; }
tbody th code { font-weight: 500; }
tbody .group th { color: var(--muted); font-size: .82rem; font-weight: 500; padding: .7rem 0 0; }
tbody .group + tr > * { border-top: 0; padding-top: .1rem; }
tbody small { display: block; color: var(--muted); font-weight: 400; font-size: .82rem; }
.number, .state { white-space: nowrap; }
/* The index: a row is a line of short facts above its logs. */
.runs, .runs thead, .runs tbody, .runs caption { display: block; }
.runs tr { display: grid; border-top: 1px solid var(--line); padding: .6rem 0;
  grid-template-columns: minmax(0, 5fr) minmax(0, 3fr) minmax(0, 2fr) minmax(0, 1.7fr) minmax(0, 3.6fr) minmax(0, 1.6fr); }
.runs thead tr { border: 0; padding: 0; }
.runs tbody th, .runs tbody td { border: 0; padding: 0 1rem 0 0; width: auto; }
.runs .logs { grid-column: 1 / -1; }
.runs thead th:last-child { position: absolute; clip-path: inset(50%); }
.spark { display: block; width: 7.5rem; height: 1.75rem; }

.curves { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(20rem, 100%), 1fr)); gap: 1.6rem 1.75rem; }
.curve { min-width: 0; display: flex; flex-direction: column; justify-content: flex-end; }
.curve figcaption { margin-bottom: .3rem; line-height: 1.4; font-size: .82rem; }
.curve figcaption > code { margin-right: .7em; color: var(--text); font-size: .85rem; font-weight: 500; }
.curve b { color: var(--text); font-weight: 600; }
.curve > svg { display: block; width: 100%; height: auto; overflow: visible; }
.key { margin: -.35rem 0 1.1rem; font-size: .88rem; color: var(--muted); }
.key svg { width: .9em; height: .9em; vertical-align: -.1em; overflow: visible; }
.key span { white-space: nowrap; margin-right: 1.1rem; }
svg text { font-size: 11px; fill: var(--muted); }
.grid { stroke: var(--grid); stroke-width: 1; fill: none; }
.axis { stroke: var(--muted); stroke-width: 1; fill: none; }
.line { stroke: var(--curve); stroke-width: 1.6; fill: none; stroke-linejoin: round; stroke-linecap: round; }
.dots { stroke: var(--curve); stroke-width: 4.5; fill: none; stroke-linecap: round; }
.last { fill: var(--curve); }
.ring { fill: var(--card); stroke: var(--curve); stroke-width: 1.4; }
.odd { stroke: var(--bad); stroke-width: 1.6; fill: none; stroke-linecap: round; stroke-linejoin: round; }

.block { overflow-x: auto; background: var(--sunk); border: 1px solid var(--line); border-radius: .4rem; padding: .8rem 1rem;
  line-height: 1.4; font-size: .84rem; white-space: pre; overflow-wrap: normal; }
.block code { font-size: 1em; }
.block:focus-visible { outline: 2px solid var(--curve); outline-offset: 2px; }
* + .block { margin-top: .4rem; }
.places + p { margin-top: 1rem; }
footer { font-size: .85rem; padding: 0 .1rem; }

/* A phone: each row of a table becomes a small block of its own. */
@media screen and (max-width: 46rem) {
  .wrap { padding: 1.1rem .75rem 1.5rem; }
  .card { padding: .95rem .9rem; }
  h1 { font-size: 1.3rem; }
  .facts { grid-template-columns: repeat(auto-fill, minmax(8.2rem, 1fr)); gap: .75rem 1rem; }
  .places, .places > div { display: block; }
  .places div + div { margin-top: .55rem; }
  .places dt { font-size: .82rem; }
  table, tbody, caption { display: block; }
  .runs tbody tr { display: flex; }
  .runs tbody th, .runs tbody td { padding: 0; }
  thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  tr { display: flex; flex-wrap: wrap; gap: .1rem .8rem; padding: .6rem 0; border-top: 1px solid var(--line); }
  tbody th, tbody td, tbody .group + tr > * { padding: 0; border: 0; }
  tbody th, .logs { flex: 0 0 100%; }
  .value { flex: 1 0 calc(100% - 9rem); }
  .words { flex: 1 1 9rem; }
  tbody .group { padding: .9rem 0 .1rem; }
  tbody .group + tr { padding-top: 0; }
  tbody .group + tr, tbody:first-of-type > tr:first-child { border-top: 0; }
  tbody .group th { padding: 0; }
  td:empty { display: none; }
}
@media print {
  @page { margin: 14mm; }
  :root { color-scheme: light; --page: #ffffff; --sunk: #ffffff; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  body { font-size: 10pt; }
  .wrap { max-width: none; padding: 0; }
  .card { border-radius: 0; border-width: 1px 0 0; padding: .8rem 0; }
  .verdict { border-width: 0 0 0 .4rem; padding: .8rem 1rem; }
  table { font-size: .84em; }
  .curves { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .curve, .finding, .quote, .facts > div, .verdict, tr { break-inside: avoid; }
  h2, h3, .group { break-after: avoid; }
  .block { white-space: pre-wrap; overflow: visible; overflow-wrap: anywhere; border: 0; padding: 0; }
}
"""
