"""Three mail providers train one spam filter; no mail leaves its provider.

python examples/mail.py --out filter
"""

from __future__ import annotations

import click

from blindbayes.cli.commands.demo import Story, fresh_folder, train_together
from blindbayes.datasets import mail as generate


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--out", type=click.Path(file_okay=False), help="Write the providers' releases here (a new name if taken).")
@click.option("--rows", type=click.IntRange(300, 1_000_000), default=6000, show_default=True, help="Mails in all.")
@click.option("--words", type=click.IntRange(500, 100_000), default=50_000, show_default=True, help="Size of the vocabulary.")
def mail(as_json: bool, out: str | None, rows: int, words: int) -> None:
    """Three mail providers train one spam filter; no mail leaves its provider.

    Each provider sees other campaigns of spam. What is summed under masks is how often each word of a public vocabulary stands
    in spam and in honest mail.

    Example:
      python examples/mail.py --out filter
    """
    story = Story(
        "mail providers",
        f"one spam filter over {words:,} words",
        "accuracy on new mail",
        "They differ in size and in the spam that they see",
        4.0,
    )
    train_together(generate(rows, words=words), generate(6000, words=words, seed=77), story, as_json, fresh_folder(out))


if __name__ == "__main__":
    mail()
