"""Measure the figures that README and docs state, store them in docs/figures.json and write them into the pages.

    python benchmarks/figures.py --store                   # every figure, full size: an hour on a quiet machine
    python benchmarks/figures.py --store counting arrays   # some of them
    python benchmarks/figures.py --quick                   # small sizes, to see that it runs; nothing is stored
    python benchmarks/figures.py --write                   # the pages again, from what is stored

A page holds a figure between `<!-- figure: counting.times -->` and `<!-- /figure -->`; nothing else may state one. Measurements
are stored with date, commit and machine; tests/docs/test_figures.py compares pages and file.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from _measured import Options, machine

ROOT = Path(__file__).resolve().parent.parent
STORED = ROOT / "docs" / "figures.json"
MARKED = re.compile(r"<!-- figure: ([a-z_]+)\.([a-z_]+) -->(.*?)<!-- /figure -->", re.DOTALL)
Figures = dict[str, Any]  # a text, or the rows of a table


# -- what is measured --------------------------------------------------------------------------------------------------------


def counting(quick: bool) -> Figures:
    """Fit from Parquet and CSV beside scikit-learn's in-memory fit, one process each."""
    import counting as bench

    rows = 500_000 if quick else 20_000_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.parquet"
        bench.write_table(path, rows)
        mine, peer, text = (
            bench.in_process(*side) for side in (("ours", path), ("theirs", path), ("ours", path.with_suffix(".csv")))
        )
        noisy = bench.in_process("private", path)
    return {
        "rows": written(rows),
        "times": down(peer["cpu"] / mine["cpu"]),
        "csv": up(text["cpu"] / mine["cpu"]),
        "private": up(noisy["cpu"] / mine["cpu"]),
        "peak": f"{mine['peak_mb']:.0f} MB",
    }


def arrays(quick: bool) -> Figures:
    """Fit and predict in memory beside scikit-learn: the lower of the two ratios, by kind of table."""
    import arrays as bench

    rows = 50_000 if quick else 1_000_000
    lowest: dict[str, float] = {}
    for name, case in bench.cases(rows).items():
        kind = "_".join(name.split(",")[0].split(" ")[:2])
        spent = bench.measured(*case, rounds=1 if quick else 5)
        lowest[kind] = min(lowest.get(kind, math.inf), *(peer / mine for mine, peer in spent.values()))
    return {"rows": written(rows), **{kind: down(ratio) for kind, ratio in lowest.items()}}


def large(quick: bool) -> Figures:
    """CPU and peak memory of counting as the table grows."""
    import large as bench

    sizes = [10**5, 10**6] if quick else [10**5, 10**6, 10**7, 10**8]
    lines, most = [["rows", "Parquet files, in batches: CPU", "peak memory", "DuckDB, where it lies: CPU", "peak memory"]], 0.0
    with tempfile.TemporaryDirectory() as folder:
        for size in sizes:
            found = [bench.measured(way, made) for made in [bench.write(Path(folder), size)] for way in bench.WAYS]
            most = max(most, *(each["peak_mb"] for each in found))
            lines.append(
                [f"{size:,}", *(cell for each in found for cell in (f"{each['cpu']:.1f} s", f"{each['peak_mb']:.0f} MB"))]
            )
    return {"table": lines, "peak": f"{math.ceil(most / 10) * 10} MB"}


def masked_sum(quick: bool) -> Figures:
    """CPU and bytes of a simulated sum as parties grow."""
    import masked_sum as bench

    lines = [["parties", "CPU of a contributor", "its bytes up", "CPU of the server, per contributor"]]
    for parties in (100, 500) if quick else (500, 1_000, 2_000, 10_000):
        own = bench.measure(parties, 250)
        cells = f"{own['contributor_ms']} ms", f"{own['contributor_bytes_up'] / 1e3:.1f} kB", f"{own['server_ms_per_party']} ms"
        lines.append([f"{parties:,}", *cells])
    return {"table": lines}


def agents(quick: bool) -> Figures:
    """CPU of two agents over that of the same study in one process."""
    import column_sites as bench

    rows, instances = (5_000, 500) if quick else (200_000, 10_000)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "ask").mkdir()
        trained, classified = bench.compare(Path(folder), rows, instances, 2 if quick else 4)
    return {"rows": written(rows), "instances": written(instances), "train": up(trained), "classify": up(classified)}


MEASURES: dict[str, Callable[[bool], Figures]] = {each.__name__: each for each in (counting, arrays, large, masked_sum, agents)}


def down(ratio: float) -> str:
    """A ratio that we claim, never more than measured."""
    return f"{math.floor(ratio)}" if ratio >= 3 else f"{math.floor(10 * ratio) / 10:.1f}"


def up(ratio: float) -> str:
    """A cost that we admit, never less than measured."""
    return f"{math.ceil(10 * ratio) / 10:.1f}"


def written(count: int) -> str:
    """A number as prose has it."""
    return f"{count / 10**6:g} million" if count >= 10**6 else f"{count:,}"


# -- pages -------------------------------------------------------------------------------------------------------------------


def pages() -> list[Path]:
    """README and every page of the documentation."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def rendered(text: str, stored: dict[str, Any]) -> str:
    """The page with its figures as stored."""

    def figure(match: re.Match[str]) -> str:
        own = stored[match[1]]
        value = own["date"] + ", " + own["machine"] if match[2] == "when" else own["figures"][match[2]]
        if isinstance(value, list):
            rows = [" | ".join(cells) for cells in (value[0], ["---"] * len(value[0]), *value[1:])]
            value = "\n\n" + "".join(f"| {row} |\n" for row in rows) + "\n"
        return f"<!-- figure: {match[1]}.{match[2]} -->{value}<!-- /figure -->"

    return MARKED.sub(figure, text)


def write_pages(stored: dict[str, Any]) -> None:
    """Put the stored figures into the pages."""
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if (new := rendered(text, stored)) != text:
            page.write_text(new, encoding="utf-8")


def commit() -> str:
    """The commit that is measured, marked if files differ from it."""
    asked = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    parser = Options(__doc__)
    parser.add_argument("what", nargs="*", help=f"of {', '.join(MEASURES)}; all by default")
    parser.add_argument("--store", action="store_true", help="store the figures and write them into the pages")
    parser.add_argument("--write", action="store_true", help="write the stored figures into the pages, and measure nothing")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    given = parser.parse_args()
    stored = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    quick_all = ["arrays"]  # the others have short forms of their own, which are tested
    for name in [] if given.write else given.what or (quick_all if given.quick else list(MEASURES)):
        found = MEASURES[name](given.quick)
        print(name, json.dumps(found), flush=True)
        stored[name] = {
            "date": datetime.now(UTC).date().isoformat(),
            "commit": commit(),
            "machine": machine(),
            "figures": found,
        }
        if given.store:
            STORED.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    if given.store or given.write:
        write_pages(stored)


if __name__ == "__main__":
    main()
