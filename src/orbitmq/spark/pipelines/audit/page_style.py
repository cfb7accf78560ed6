"""The style sheet of the audit report."""

STYLE = """
:root { color-scheme: light; --ink: #1d2733; --faint: #5f6c7b; --line: #e1e6ec; --paper: #fff; --ground: #f4f6f9;
  --good: #1f7a4d; --bad: #b3261e; --warn: #9a6200; --link: #2563a8; }
* { box-sizing: border-box; }
html { scroll-behavior: smooth; }
body { margin: 0; background: var(--ground); color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI", Roboto,
  "Helvetica Neue", "DejaVu Sans", sans-serif; }
main { max-width: 1240px; margin: 0 auto; padding: 36px 24px 48px; }
.brand { margin: 0; color: var(--link); font-weight: 600; letter-spacing: .02em; }
h1 { margin: 2px 0 14px; font-size: 27px; line-height: 1.25; overflow-wrap: anywhere; }
h2 { margin: 0 0 4px; font-size: 18px; display: flex; gap: 10px; align-items: baseline; }
h2 small { font-size: 13px; font-weight: 400; color: var(--faint); }
dl { display: flex; flex-wrap: wrap; gap: 8px 30px; margin: 0; }
dt { font-size: 12px; color: var(--faint); }
dd { margin: 0; overflow-wrap: anywhere; }
.verdict { margin: 22px 0 14px; padding: 13px 18px; border-radius: 8px; font-size: 17px; font-weight: 600;
  color: #fff; }
.verdict.good { background: var(--good); }
.verdict.bad { background: var(--bad); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 0 0 22px; }
.card { display: flex; flex-direction: column; padding: 13px 16px; background: var(--paper); border-radius: 8px;
  border: 1px solid var(--line); border-top: 4px solid var(--line); text-decoration: none; color: var(--ink); }
.card b { font-size: 25px; line-height: 1.15; font-variant-numeric: tabular-nums; }
.card span { color: var(--faint); font-size: 13px; }
.card.none { border-top-color: var(--good); }
.card.bad { border-top-color: var(--bad); }
.card.bad b { color: var(--bad); }
.card.warn { border-top-color: var(--warn); }
.card.warn b { color: var(--warn); }
.card:hover { border-color: var(--link); }
section { background: var(--paper); border: 1px solid var(--line); border-radius: 8px; padding: 18px 20px;
  margin: 0 0 16px; }
.rule { margin: 0 0 12px; color: var(--faint); font-size: 13.5px; max-width: 90ch; }
.nothing { color: var(--faint); margin: 0; }
figure { margin: 6px 0 14px; }
figure svg { display: block; width: 100%; height: auto; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th { text-align: left; font-weight: 600; color: var(--faint); border-bottom: 2px solid var(--line);
  padding: 6px 12px 6px 0; white-space: nowrap; }
td { border-bottom: 1px solid var(--line); padding: 6px 12px 6px 0; vertical-align: top; }
tbody tr:last-child td { border-bottom: 0; }
tbody tr:hover { background: #f7f9fb; }
th.number, td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td { white-space: nowrap; }
td.words { white-space: normal; min-width: 22ch; }
td.id { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 12px; }
time { white-space: nowrap; font-variant-numeric: tabular-nums; }
.more { margin: 8px 0 0; color: var(--faint); }
footer { color: var(--faint); font-size: 13px; }
@media print { body { background: #fff; } section, .card { break-inside: avoid; } }
"""
