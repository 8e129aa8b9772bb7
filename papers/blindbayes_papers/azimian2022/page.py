"""Figures 9 to 12 of Azimian et al. in the paper's form, and the page with its statements beside ours."""

from __future__ import annotations

import html
import pathlib

from blindbayes_papers import REFERENCES
from blindbayes_papers.azimian2022.measure import DATASETS, KEY_SIZES, SCHEMES, Measurement
from blindbayes_papers.azimian2022.schemes import Records
from blindbayes_papers.pages import document, images, pyplot, table
from blindbayes_papers.quotations import quote


def plot(made: list[Measurement], out: pathlib.Path) -> list[str]:
    """Figures 9 to 12: time and memory, at each key size."""
    plt = pyplot()
    names = []
    for number, (bits, what) in enumerate([(bits, what) for bits in KEY_SIZES for what in ("time", "memory")], start=9):
        figure, axes = plt.subplots(figsize=(10, 5.5))
        width = 0.8 / len(SCHEMES)
        top = 0.0
        for at, (scheme, title) in enumerate(SCHEMES.items()):
            rows = [one for name in DATASETS for one in made if (one.dataset, one.key_bits, one.scheme) == (name, bits, scheme)]
            heights = [row.total_seconds if what == "time" else max(row.growth_mb, 0.1) for row in rows]
            top = max(top, *heights)
            places = [group + at * width for group in range(len(rows))]
            bars = axes.bar(places, heights, width, label=title)
            axes.bar_label(
                bars,
                [f"{height:,.0f}" if height >= 100 else f"{height:.3g}" for height in heights],
                fontsize=11,
                rotation=90,
                padding=2,
            )
        axes.set_yscale("log")
        axes.set_xticks([group + 0.4 - width / 2 for group in range(len(DATASETS))], [name.capitalize() for name in DATASETS])
        axes.set_ylabel("CPU seconds, all parties" if what == "time" else "memory above the idle process, MB")
        axes.set_title(f"Figure {number}: {what} with {bits}-bit keys")
        axes.set_ylim(None if what == "time" else 0.1, top * (3000 if what == "time" else 100))  # space for the legend
        axes.legend(fontsize=11, ncols=2, loc="upper center")
        figure.tight_layout()
        name = f"figure{number}.png"
        figure.savefig(out / name, dpi=100)
        plt.close(figure)
        names.append(name)
    return names


def _find(made: list[Measurement], dataset: str, bits: int, scheme: str) -> Measurement:
    return next(one for one in made if (one.dataset, one.key_bits, one.scheme) == (dataset, bits, scheme))


def _saving(made: list[Measurement], dataset: str, bits: int, scheme: str, against: str) -> float:
    ours, theirs = _find(made, dataset, bits, scheme), _find(made, dataset, bits, against)
    return 100 * (1 - ours.total_seconds / theirs.total_seconds)


def _note(one: Measurement) -> str:
    if not one.scaled:
        return ""
    return f" (scaled up from {one.timed} contributors)" if one.timed else " (from measured operations)"


def page(made: list[Measurement], data: dict[str, Records], pictures: list[str], read: tuple[int, int]) -> str:
    def span(values: list[float], form: str = ".1f") -> str:
        return f"{min(values):{form}} to {max(values):{form}}"

    def savings(bits: int, scheme: str, against: str) -> list[float]:
        return [_saving(made, name, bits, scheme, against) for name in DATASETS]

    def more_memory(bits: int, scheme: str) -> list[float]:
        return [
            100 * (_find(made, name, bits, scheme).peak_mb / _find(made, name, bits, "unpacked").peak_mb - 1)
            for name in DATASETS
        ]

    wide, toy = KEY_SIZES
    shapes = "; ".join(
        f"{name.capitalize()} {len(one.owners)} x {one.value_count} values x {one.label_count} labels"
        for name, one in data.items()
    )
    statements = [
        [
            "time saved by the printed scheme against encrypted counting",
            f"{quote('azimian2022', 'time')}; of its baseline: {quote('azimian2022', 'baseline')}",
            f"{span(savings(wide, 'printed', 'unpacked'))}% at {wide} bits, {span(savings(toy, 'printed', 'unpacked'))}% at "
            f"{toy}, against one ciphertext per value and label. The paper does not say (7) how many counts its baseline "
            "encrypts: the next table has three readings. Against the last, the least that counting can encrypt, the printed "
            f"scheme costs more on {sum(value < 0 for value in savings(wide, 'printed', 'unpacked_present'))} of "
            f"{len(DATASETS)} tables at {wide} bits",
        ],
        [
            "time saved by chain_sum",
            "",
            f"{span(savings(wide, 'chain_sum', 'printed'))}% at {wide} bits against the printed scheme",
        ],
        [
            "memory of the printed scheme above encrypted counting",
            f"{quote('azimian2022', 'memory')}; {quote('azimian2022', 'memory_short')}",
            f"{span(more_memory(wide, 'printed'))}% at {wide} bits, {span(more_memory(toy, 'printed'))}% at {toy}: the whole "
            f"process is the base, {_find(made, DATASETS[0], wide, 'unpacked').peak_mb:.0f} MB of interpreter and libraries; "
            "of the growth alone (last table) the shares are larger. The paper does not say what its base is",
        ],
        [
            "memory of Li et al. above encrypted counting",
            quote("azimian2022", "memory_li"),
            f"{span(more_memory(wide, 'multiple_sources'), '.0f')}% at {wide} bits (scaled up), on a process of "
            f"{_find(made, DATASETS[0], wide, 'unpacked').peak_mb:.0f} MB: "
            f"{span([_find(made, name, wide, 'multiple_sources').growth_mb for name in DATASETS], '.0f')} MB more",
        ],
        [
            "memory of chain_sum above encrypted counting",
            "",
            f"{span(more_memory(wide, 'chain_sum'))}% at {wide} bits, {span(more_memory(toy, 'chain_sum'))}% at {toy}",
        ],
        [
            "a builder that records all messages reads",
            quote("azimian2022", "starters"),
            f"printed scheme: {read[0]} of 20 contributors; chain_sum: {read[1]} of 20. The second pass adds up the masks in "
            "the clear order of its links: a reader of both passes subtracts a contributor's link of the second from "
            "that of the first and has its record. chain_sum seals every link to the next hop, and masks cancel in one pass",
        ],
    ]
    saved = [
        [str(bits), SCHEMES[scheme], SCHEMES[against]]
        + [f"{value:.1f}" if value < 99.9 else f"{value:.3f}" for value in savings(bits, scheme, against)]
        for scheme, others in (
            ("printed", ("unpacked", "unpacked_record", "unpacked_present")),
            ("chain_sum", ("unpacked", "printed")),
        )
        for against in others
        for bits in KEY_SIZES
    ]
    rows = [
        [
            one.dataset.capitalize(),
            str(one.key_bits),
            SCHEMES[one.scheme],
            str(one.encryptions),
            f"{one.contributor_ms:.3f}",
            f"{one.builder_seconds:.3f}",
            f"{one.total_seconds:.2f}" + _note(one),
            f"{one.growth_mb:.1f}",
            f"{_saving(made, one.dataset, one.key_bits, one.scheme, 'unpacked'):.3f}",
        ]
        for one in made
    ]
    head = [
        "dataset",
        "bits",
        "scheme",
        "encryptions each",
        "contributor ms",
        "builder s",
        "total CPU s",
        "memory MB",
        "saved %",
    ]
    body = f"""<h1>Azimian et al. 2022, Figures 9 to 12</h1>
<p>{html.escape(REFERENCES["azimian2022"])}</p>
<p>{html.escape(shapes)}. One record per contributor. CPU time of all parties together; every bar in a process of its own.
{toy}-bit keys protect nothing and stand here because the paper measured them (7.1).</p>
<h2>The paper and ours</h2>{table(["what", "the paper", "here"], statements)}
<h2>Time saved, per cent</h2>
<p>Below zero it costs more.</p>
{table(["bits", "scheme", "against", *(name.capitalize() for name in DATASETS)], saved)}
<h2>Figures</h2>{images(pictures)}
<h2>All measurements</h2>
<p>Saved: against one ciphertext per value and label at the same key size. Encryptions of chain_sum are those that the builder
deals to a contributor.
Memory: growth of a process that runs the builder and one contributor after the other.</p>
{table(head, rows)}"""
    return document("Azimian et al. 2022, reproduced", body)
