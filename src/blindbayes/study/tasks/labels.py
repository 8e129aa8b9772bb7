"""Labels that are randomised once: `label_epsilon` in a class holder's table, its ledger and the statement."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from blindbayes.data.columns import ColumnSource
from blindbayes.data.identifiers import DIGEST_BYTES, read_digests, recipe_of
from blindbayes.disclosure.charges import Charge
from blindbayes.dp.accounting.accountant import Spend
from blindbayes.dp.noise.randomised_response import RandomisedLabels
from blindbayes.errors import LocalProtocolError
from blindbayes.study.study import JoinStudy, Study
from blindbayes.study.tasks.task import UNIT

NAME = "randomised labels"


def law_of(study: Study) -> RandomisedLabels | None:
    """Return how the class holder randomises its labels; None: it counts them as they are."""
    budget = study.label_budget
    return None if budget is None else RandomisedLabels.make(budget, len(study.codebook.classes))


def randomised(study: Study, source: ColumnSource, secret: bytes) -> tuple[ColumnSource, str]:
    """Return the class holder's table with randomised labels, and the name of the draw; unchanged without `label_epsilon`.

    Nothing after this sees a true label.
    """
    law = law_of(study)
    if law is None:
        return source, ""
    people = b""
    if isinstance(study, JoinStudy):  # read first: it keeps the table, whose rows may come in another order the next time
        digests = read_digests(source, recipe_of(study.codebook, study.key or None), secret[:64])
        people = b"".join(bytes(DIGEST_BYTES) if each is None else each for each in digests)
    source = replace(source, lenient=True)  # whether a label is listed must not show
    blocks = [block.known_labels for block in replace(source, features=()).blocks()]
    labels = np.concatenate(blocks) if blocks else np.zeros(0, dtype=np.int64)
    release = law.randomise(labels, study.codebook, secret, people)
    return replace(source, randomised=release.labels), release.name


def require_randomised(study: Study, source: ColumnSource) -> None:
    """Raise if true labels would be counted in a study that randomises them."""
    if law_of(study) is not None and source.randomised is None:
        raise LocalProtocolError("labels are counted after they were randomised, and never before")


def with_labels(charge: Charge | None, study: Study) -> Charge | None:
    """Return what the class holder pays, its labels included.

    A ledger counts steps of adding or removing a record, and exchanging a class is two of them: labels cost half of
    label_epsilon, which an epsilon as large covers. The same draw is free.
    """
    law = law_of(study)
    if law is None:
        return charge
    labels = law.epsilon / 2
    if charge is None:
        return Charge(Spend(labels, Fraction(0)), UNIT, mechanism=NAME)
    spend = charge.spend if charge.spend.epsilon >= labels else Spend(labels, charge.spend.delta)
    return replace(charge, spend=spend, mechanism=f"{charge.mechanism}, {NAME}", repeat=charge.spend)


def describe_labels(study: Study, class_holder: str) -> list[str]:
    """Describe the promise of randomised labels, and its limits."""
    law = law_of(study)
    if law is None:
        return []
    epsilon = float(law.epsilon)
    return [
        f"Randomised labels: before anything was counted, {class_holder} kept each label with probability {law.keeps:.4g} and "
        f"turned it into each other class with probability {law.other / law.whole:.4g}, once: the same labels get the same "
        "coins in every training and every study, and counts are debiased inside the circuit. So for two tables that differ in "
        f"the class of one row, anything that anybody but {class_holder} ever sees, from trainings and answers in any number, "
        f"whatever the others' software sends, is differentially private with label_epsilon = {epsilon:g}: the odds between "
        f"two classes of a person move by a factor of at most e^{epsilon:g}. This rests on no other party and on no protocol, "
        f"only on {class_holder}'s own software and secret. Not covered: the columns, whether a row is there, and, by epsilon "
        "neither, whether any label of the table changed between two trainings. A changed table gets new, independent coins "
        "and is another release. "
        f"Charged to the ledger of {class_holder}, once per table of labels: epsilon = {epsilon / 2:g} (exchanging a class is "
        "two steps of adding or removing a record), which the study's epsilon covers where it is as large."
    ]
