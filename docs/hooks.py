"""Pages that are made, not written: one per protocol from its SPEC.md, and the commands from their own help."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import click
from mkdocs.structure.files import File, Files

from blindbayes.cli import root
from blindbayes.protocols import registry
from blindbayes.report.leakage import describe_label
from blindbayes.report.spec import Spec, protocols, read_spec

SIZES = ((3, 3), (5, 4), (10, 7), (100, 90))  # contributors and quorum, as the default of masked_sum has them


def on_config(config: Any) -> Any:
    """Every protocol that has a SPEC.md stands in the navigation."""
    pages = [{"All": "protocols/index.md"}, *({name: f"protocols/{name}.md"} for name in protocols())]
    for entry in config.nav:
        if isinstance(entry, dict) and "Protocols" in entry:
            entry["Protocols"] = pages
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages."""
    for name in protocols():
        files.append(File.generated(config, f"protocols/{name}.md", content=protocol_page(read_spec(name))))
    files.append(File.generated(config, "protocols/index.md", content=protocol_index()))
    files.append(File.generated(config, "commands.md", content=commands_page()))
    return files


BOOSTS = (("how-to/", 4.0), ("tutorials/", 3.0), ("install.md", 3.0), ("commands.md", 0.1), ("api", 0.2), ("papers/", 0.3))


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Let search rank how-to pages and tutorials above lists of everything."""
    boost = next((factor for start, factor in BOOSTS if page.file.src_uri.startswith(start)), 1.0)
    page.meta.setdefault("search", {"boost": boost})
    return markdown


SHIM = "https://unpkg.com/iframe-worker/shim"  # what the theme's search would fetch; docs/worker.js does it here


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Nothing is fetched from elsewhere."""
    return output.replace(SHIM, "../" * page.url.count("/") + "worker.js")


def on_post_template(output_content: str, template_name: str, config: Any) -> str:
    """Replace the shim on pages without a source."""
    return output_content.replace(SHIM, "worker.js")


def protocol_index() -> str:
    rows = [
        f"| [{name}]({name}.md) | {', '.join(f'`{label}`' for label in read_spec(name).opened) or 'nothing'} | "
        f"{_cell(read_spec(name).paragraph('Who learns what'))} |"
        for name in protocols()
    ]
    return "\n".join(
        [
            "# Protocols",
            "",
            "Each page is the specification that stands beside the code; tests hold the two together: the labels that a run "
            "opens equal the list, and its measured cost equals the formula.",
            "",
            "| protocol | opened | who learns what |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def protocol_page(spec: Spec) -> str:
    """Return the SPEC.md with the closing box of every protocol."""
    return f"{_spaced(spec.prose).rstrip()}\n\n{closing_box(spec)}\n"


def closing_box(spec: Spec) -> str:
    """Who learns what, in the same form for every protocol."""
    lines = ['!!! abstract "Who learns what"', ""]
    lines += [f"    {spec.paragraph('Who learns what')}", ""]
    if spec.opened:
        lines += [f"    - `{label}`: {describe_label(label)}" for label in spec.opened]
    else:
        lines.append("    - Nothing is opened.")
    for key, labels in spec.table.items():
        if key.startswith("opened_") and labels:
            when = key.removeprefix("opened_").replace("_", " ")
            lines += [f"    - {when}: `{label}`: {describe_label(label)}" for label in labels]
    if spec.name in registry.known() and hasattr(registry.load(spec.name), "bears"):
        lines += [
            "",
            "    How many contributors may pool what they saw with whoever reads the sum, and learn no more than it:",
            "",
        ]
        # A protocol that loses nobody has no quorum.
        quorums = spec.table["facts"].get("may_lose", False)
        heads = ["contributors", *(["quorum"] if quorums else []), "reader follows the protocol", "reader deviates"]
        lines += [f"    | {' | '.join(heads)} |", f"    |{'---|' * len(heads)}"]
        for contributors, quorum in SIZES:
            names = tuple(f"site{at}" for at in range(contributors))
            found = registry.coalition_of(spec.name, registry.SumSetup(names, 1, quorum if quorums else None, bound=2**20))
            if found is not None:
                shown = [str(most) if most >= 0 else "nothing is claimed" for most in (found.passive, found.active)]
                cells = [str(contributors), *([str(quorum)] if quorums else []), *shown]
                lines.append(f"    | {' | '.join(cells)} |")
    return "\n".join(lines)


def commands_page() -> str:
    """Every command with its help, as the program prints it."""
    parts = ["# Commands", "", "As `--help` prints them. Exit codes: 0 done, 1 unexpected, 2 configuration, 3 data, 4 privacy,",
             "5 to 8 protocol, 9 ledger, 10 stopped by people.", ""]  # fmt: skip
    for path, command in walk(root, ("blindbayes",)):
        context = click.Context(command, info_name=" ".join(path), max_content_width=96)
        parts += [f"{'#' * min(len(path), 3)}# {' '.join(path)}", "", "```text", command.get_help(context).rstrip(), "```", ""]
    return "\n".join(parts)


def walk(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command below this one, depth first."""
    if len(path) > 1:
        yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None:
                yield from walk(found, (*path, name))


def _spaced(text: str) -> str:
    """Markdown that every reader takes the same way: an empty line before a list, a product that is no emphasis."""
    out: list[str] = []
    for line in text.splitlines():
        starts = re.match(r"(- |\d+\. |\|)", line)
        if starts and out and out[-1].strip() and not re.match(r"\s|- |\d+\. |\|", out[-1]):
            out.append("")
        # A product is no emphasis: c*n + 8*words.
        parts = re.split(r"(`[^`]*`)", line)
        out.append("".join(part if part.startswith("`") else re.sub(r"(?<=[\w)])\*(?=[\w(])", r"\\*", part) for part in parts))
    return "\n".join(out)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
