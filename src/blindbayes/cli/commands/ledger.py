"""`blindbayes ledger`: open, show and verify the record of privacy spent."""

from __future__ import annotations

from typing import Any

import click
from rich.markup import escape
from rich.table import Table

from blindbayes.cli import print_json
from blindbayes.cli.options import JSON, print_result
from blindbayes.cli.screen import Screen
from blindbayes.dp.accounting.accountant import FILTERS, Composition
from blindbayes.dp.accounting.ledger import Balance, Head, Ledger

_MAX_SHOWN = 1000  # rich takes a millisecond and more for each row


_PATH = click.argument("path", type=click.Path(dir_okay=False))


@click.group(name="ledger")
def command() -> None:
    """Keep the record of privacy spent: append-only, hash-chained, charged before every release.

    Example:
      blindbayes ledger init ledger.jsonl --epsilon 2
      blindbayes ledger show ledger.jsonl
      blindbayes ledger verify ledger.jsonl
    """


@command.command()
@_PATH
@click.option("--epsilon", required=True, help="Maximum epsilon, for example 1 or 0.5.")
@click.option("--delta", default="0", show_default=True, help="Maximum delta; above zero for Gaussian noise.")
@click.option("--unit", default="one record", show_default=True, help="Protected unit, as the releases name it.")
@click.option(
    "--composition",
    type=click.Choice(FILTERS),
    default="basic",
    show_default=True,
    help="How releases compose, each chosen after the others: sums, or zero-concentrated budgets.",
)
@click.option("--owner", default="", help="Owner of this ledger.")
@JSON
def init(path: str, epsilon: str, delta: str, unit: str, composition: Composition, owner: str, as_json: bool) -> None:
    """Open a new ledger at PATH with its budget.

    Example:
      blindbayes ledger init ledger.jsonl --epsilon 2 --delta 0.000001
    """
    ledger = Ledger.create(path, epsilon=epsilon, delta=delta, unit=unit, composition=composition, owner=owner)
    facts = {"path": path, "head": str(ledger.head), **_facts(ledger.balance())}
    opened = f"Opened {path}: epsilon up to {epsilon}, delta up to {delta}, for {unit}; composition {composition}."
    print_result(facts, [opened, f"Head {ledger.head}"], as_json=as_json)


@command.command()
@_PATH
@click.option("--delta", "deltas", multiple=True, help="Show epsilon at this delta too; may be given several times.")
@JSON
def show(path: str, deltas: tuple[str, ...], as_json: bool) -> None:
    """Show what was spent, on what, and what is left.

    Example:
      blindbayes ledger show ledger.jsonl
      blindbayes ledger show ledger.jsonl --delta 1e-6 --delta 1e-8
    """
    ledger = Ledger(path)
    spent_at = ledger.spent_at(deltas)
    entries, balance = ledger.entries(), ledger.balance()
    if as_json:
        rows = [{"n": each.n, "time": each.time, "kind": each.kind, "hash": each.hash, **each.fields} for each in entries]
        print_json({"path": path, "head": str(ledger.head), **_facts(balance), "spent_at": spent_at, "entries": rows})
        return
    table = Table(title=escape(f"{path}: {balance.unit}, {balance.adjacency}"), title_justify="left")
    for column in ("n", "time (UTC)", "entry", "epsilon", "delta", "mechanism", "for"):
        table.add_column(column, justify="right" if column in ("n", "epsilon", "delta") else "left")
    for entry in entries[-_MAX_SHOWN:]:
        fields = entry.fields
        about = fields.get("purpose") or fields.get("reason") or fields.get("owner") or ""
        if fields.get("part"):
            about = f"{about} [part {fields['part']} of {fields['partition']}]"
        table.add_row(
            str(entry.n),
            escape(entry.time.removesuffix("+00:00").replace("T", " ")),
            escape(entry.kind),
            escape(str(fields.get("epsilon", ""))),
            escape(str(fields.get("delta", ""))),
            escape(str(fields.get("mechanism", ""))),
            escape(str(about)),
        )
    screen = Screen()
    screen.print(table, markup=False)
    if len(entries) > _MAX_SHOWN:
        screen.line(f"The last {_MAX_SHOWN} of {len(entries)} entries; --json shows all.")
    screen.line(
        f"Spent epsilon {balance.spent_epsilon:g} of {float(balance.epsilon):g} (delta {balance.spent_delta:g} of "
        f"{float(balance.delta):g}) in {balance.charges} release{'s' * (balance.charges != 1)}, composition "
        f"{balance.composition}; {balance.left:g} left."
    )
    for at in spent_at:
        total, any_time = ("none" if value is None else f"epsilon {value:.4g}" for value in (at["epsilon"], at["any_time"]))
        screen.line(
            f"At delta {at['delta']:g}: {total} for a total fixed beforehand; {any_time} whenever one looks (odometer)."
        )
    if balance.torn:
        screen.line(f"{balance.torn} unfinished writes are recorded as torn; they were not charged and released nothing.")


@command.command()
@_PATH
@click.option("--head", default=None, help="Head seen before, NUMBER:SHA256, to detect truncation and rewriting.")
@JSON
def verify(path: str, head: str | None, as_json: bool) -> None:
    """Verify every entry and the hash chain; exit code 9 if the ledger was changed.

    Example:
      blindbayes ledger verify ledger.jsonl
    """
    ledger = Ledger(path)
    last = ledger.verify(Head.parse(head) if head else None)
    facts = {"path": path, "verified": True, "against_head": head, "head": str(last)}
    hint = "" if head else " Pass --head with one seen before to rule out truncation."
    print_result(facts, [f"{path}: {last.n + 1} entries verify.{hint}", f"Head {last}"], as_json=as_json)


def _facts(balance: Balance) -> dict[str, Any]:
    plain = ("unit", "adjacency", "composition", "spent_epsilon", "spent_delta", "charges", "torn")
    numbers = {"epsilon": float(balance.epsilon), "delta": float(balance.delta), "left_epsilon": balance.left}
    return {name: getattr(balance, name) for name in plain} | numbers
