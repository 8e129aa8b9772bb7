"""The rule of floored sums in clear: the oracle of the protocol."""

from typing import Any

import numpy as np

from blindbayes.statistics import Statistics
from blindbayes.statistics.floor import Ask, FlooredTable, open_table, values_of


def floored(statistics: Statistics, floor: int) -> FlooredTable:
    """Apply the rule to a table."""
    words, rule = statistics.words, open_table(statistics.layout, floor)
    answer: Any = None
    while True:
        try:
            question = rule.send(answer)
        except StopIteration as stop:
            table: FlooredTable = stop.value
            return table
        values = values_of(question.sums, words)
        if isinstance(question, Ask):
            answer = (values >= np.array(question.low, np.uint64)) & (values <= np.array(question.high, np.uint64))
        else:
            answer = values
