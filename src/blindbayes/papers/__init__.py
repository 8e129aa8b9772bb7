"""Each paper's experiment, regenerated: theirs beside ours.

Every paper's module has `reproduce(out, *, quick=False) -> Path`: it measures, writes CSV files, pictures where matplotlib is
installed, and a page, whose path it returns.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from blindbayes.errors import ConfigError

PAPERS = {
    "azimian2022": "Azimian et al. 2022: bit strings under Paillier along a chain.",
    "huai2015": "Huai et al. 2015: aggregation with distributed noise.",
    "kikuchi2011": "Kikuchi et al. 2011: columns whose identifiers do not line up.",
    "vaidya2008": "Vaidya et al. 2008: rows and columns.",
    "zafarani2020": "Zafarani and Clifton 2020: one table, smooth sensitivity.",
}
"""Papers by name, with what they are about."""


def reproduce(paper: str, out: Path, *, quick: bool = False) -> Path:
    """Regenerate a paper's experiment into a folder; returns the page."""
    if paper not in PAPERS:
        raise ConfigError(f"no paper is named {paper!r}; there are {', '.join(PAPERS)}")
    try:
        module = import_module(f"blindbayes.papers.{paper}.experiment")
    except ModuleNotFoundError as cause:
        if cause.name != f"blindbayes.papers.{paper}.experiment":
            raise
        raise ConfigError(f"the experiment of {paper} is not part of this version") from None
    page: Path = module.reproduce(out, quick=quick)
    return page
