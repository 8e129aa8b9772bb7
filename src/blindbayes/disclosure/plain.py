"""Plain sentences about a `Disclosure`, for people who decide about a study: what leaves, who learns what, what cheating gains.

Every sentence follows from a typed field, whatever the protocol is called. A fact that a task does not state is said to be
missing, and the technical lines take its place.
"""

from __future__ import annotations

from dataclasses import dataclass

from blindbayes.disclosure.value import Answers, Disclosure, Leaving, Overlap, SumForm, Withstood

_LEAVES = {
    Leaving.HIDDEN: "{what}, hidden so that no other site can read them.",
    Leaving.PIECES: "{what}, cut into random pieces. One piece alone says nothing.",
    Leaving.ENCRYPTED: "The columns that this site holds, encrypted so that no other site can read them.",
    Leaving.READABLE: "{what}, readable by the site that collects them.",
}
_UNITS = {"record": "any single row", "person": "any single person", "party": "any single site"}
NO_ROWS = "No row, name or record number leaves this site."


@dataclass(frozen=True, slots=True)
class PlainWords:
    """Sentences for the approval page."""

    leaves: tuple[str, ...]
    learns: tuple[str, ...]
    cheating: tuple[str, ...]


def plain_words(opens: Disclosure) -> PlainWords:
    """Return what a person needs to know before they approve a study."""
    return PlainWords(_leaves(opens), _learns(opens), _cheating(opens))


def _names(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "nobody"


def _leaves(opens: Disclosure) -> tuple[str, ...]:
    if opens.leaving is Leaving.UNSTATED:
        return tuple(f"{line[:1].upper()}{line[1:]}." for line in opens.messages) or ("The details below say what leaves.",)
    lines = [_LEAVES[opens.leaving].format(what="Counts and sums over this site's rows, by column and class")]
    if opens.overlap is not None or opens.matcher:
        lines.append("Names or record numbers leave scrambled, to be compared with those of the other sites.")
    elif opens.leaving is not Leaving.ENCRYPTED:
        lines.append(NO_ROWS)
    return tuple(lines)


def _learns(opens: Disclosure) -> tuple[str, ...]:
    lines: list[str] = []
    row_sum = opens.row_sum
    if row_sum is not None and row_sum.form is not SumForm.SHARED:
        who, verb = _names(opens.learners), "learns" if len(opens.learners) == 1 else "learn"
        if row_sum.form is SumForm.NOISY:
            lines.append(f"{who} {verb} the totals of all sites together, with random noise, and the model made from them.")
            lines.append(f"The noise limits what the totals reveal about {_UNITS[opens.unit]}.")
        else:
            lines.append(f"{who} {verb} the exact totals of all sites together, and the model made from them.")
            lines.append(_small_cells(row_sum.min_cell))
        lines.append("Nobody is shown the numbers of one site. A site can take its own numbers off the totals.")
    if opens.answers is not None:
        lines += _answers(opens, opens.answers)
    if opens.overlap is not None:
        lines += _overlap(opens.overlap)
    if opens.matcher:
        lines.append(
            f"{opens.matcher}, which brings no rows, learns how many people each site has, and how many are at several."
        )
        lines.append("Nobody learns which people the sites share.")
    lines.append("Every site learns which sites took part, and when.")
    return tuple(lines)


def _small_cells(min_cell: int) -> str:
    if min_cell:
        return f"Totals over 1 to {min_cell - 1} rows are withheld before anything is opened."
    return "Nothing hides a rare case: a total of one shows that such a person exists."


def _answers(opens: Disclosure, answers: Answers) -> list[str]:
    lines = ["Nobody gets the model: it exists only in pieces, one at each site that holds one."]
    to = _names(answers.to) if answers.to else "the site that asks"
    lines.append(f"Each answer of the model opens one class, to {to}.")
    count = "any number of" if answers.queries is None else f"at most {answers.queries:,}"
    lines.append(
        f"It gives {count} answers, ever. Enough answers reveal the model{' and the totals' if opens.row_sum else ''}."
    )
    if opens.epsilon:
        lines.append(f"Noise inside the model limits what all answers together reveal about {_UNITS[opens.unit]}.")
    elif answers.min_cell:
        lines.append(f"Counts below {answers.min_cell} are set to 0 inside the model.")
    return lines


def _overlap(overlap: Overlap) -> list[str]:
    if overlap.matches_to:
        return [f"{_names(overlap.matches_to)} learn which of their people the others have too."]
    lines = ["Nobody learns which people the sites share."]
    if overlap.min_overlap:
        lines.append(f"The sites learn one thing about that: whether at least {overlap.min_overlap} people are in both lists.")
    if overlap.epsilon:
        lines.append("They also learn about how many are: a count with noise.")
    return lines


def _cheating(opens: Disclosure) -> tuple[str, ...]:
    lines = _collusion(opens, opens.withstands) if opens.withstands is not None else []
    if opens.holders:
        lines.append(f"The pieces are at {_names(opens.holders)}. Only all of them together could put the pieces together.")
    if opens.answers is not None and opens.leaving is Leaving.ENCRYPTED:
        lines.append("A site that changes its software cannot read this site's rows.")
    if opens.answers is not None:
        lines.append(
            "A site with a made-up table learns little about one person from the answers: the noise limits it."
            if opens.epsilon
            else "A site with a made-up table can learn something about one person from a few answers: there is no noise."
        )
    if opens.matcher:
        lines.append(
            f"If one site tells {opens.matcher} how names are scrambled, the two can find out at which sites a person is whose "
            "name they guess."
        )
        lines.append("A site that changes its software can find out whether a person of its own is at another site.")
    if not lines:
        lines = list(opens.deviation) or ["Nothing is promised against a site that does not follow the agreed steps."]
    lines.append("A site can make up its rows and so spoil the result. Nobody can check that from outside.")
    lines.append("A site that breaks off or breaks the rules is named, and this site's log has it.")
    return tuple(lines)


def _collusion(opens: Disclosure, withstood: Withstood) -> list[str]:
    noise = ", with noise" if opens.epsilon else ""
    if withstood.others <= 0:
        return ["The site that collects the numbers can read this site's."]
    if withstood.others >= withstood.contributors - 1:
        lines = [
            "If other sites cheat and put together what they saw, they learn no more than the total of the honest ones. "
            f"Only if all others cheat is that this site's own total{noise}."
        ]
    else:
        many = "one other site cheats" if withstood.others == 1 else f"up to {withstood.others} other sites cheat"
        lines = [
            f"If {many} and shares what it saw, nobody learns more than the total of the other sites. "
            "More cheating sites could read this site's numbers."
        ]
    if not withstood.deviating:
        lines.append("This holds while all sites follow the agreed steps. Nothing is promised if one changes its software.")
    if withstood.trusted:
        lines.append(
            f"{withstood.trusted[:1].upper()}{withstood.trusted[1:]} must stay honest, or this site's numbers can be read."
        )
    if opens.epsilon and 0 < withstood.honest_fraction < 1:
        lines.append(f"The noise is enough if at least {withstood.honest_fraction:.0%} of the sites add their part of it.")
    return lines
