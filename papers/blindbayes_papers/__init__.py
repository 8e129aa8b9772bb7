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

REFERENCES = {
    "azimian2022": "M. A. Azimian, N. Daneshpour, M. Safkhani: Privacy preserving Naïve Bayes classification using bit-string "
    "encryption. 2022 (in Persian).",
    "huai2015": "M. Huai, L. Huang, W. Yang, L. Li, M. Qi: Privacy-Preserving Naive Bayes Classification. KSEM 2015.",
    "kikuchi2011": "H. Kikuchi, D. Kagawa, A. Basu, K. Ishii, M. Terada, S. Hongo: Scalable Privacy-Preserving Data Mining "
    "with Asynchronously Partitioned Datasets. SEC 2011, pp. 223-234, doi 10.1007/978-3-642-21424-0_18.",
    "vaidya2008": "J. Vaidya, M. Kantarcioğlu, C. Clifton: Privacy-preserving Naïve Bayes classification. The VLDB Journal 17 "
    "(2008), published online 2007.",
    "zafarani2020": "F. Zafarani, C. Clifton: Differentially Private Naïve Bayes Classifier using Smooth Sensitivity. 2020.",
}
"""The papers in full."""

NEEDS = {  # what the full form takes on one core, and the datasets it reads
    "azimian2022": ("3 minutes", ("pima", "dermatology", "iris")),
    "huai2015": ("3 minutes", ("car",)),
    "kikuchi2011": ("1 minute", ()),
    "vaidya2008": ("9 minutes", ()),
    "zafarani2020": ("10 minutes", ("adult", "car", "dermatology", "iris", "mushroom", "pima", "seeds", "skin")),
}
"""CPU time of the full form, and datasets (see `blindbayes_papers.datasets`)."""


def reproduce(paper: str, out: Path, *, quick: bool = False) -> Path:
    """Regenerate a paper's experiment into a folder; returns the page."""
    if paper not in PAPERS:
        raise ConfigError(f"no paper is named {paper!r}; there are {', '.join(PAPERS)}")
    try:
        module = import_module(f"blindbayes_papers.{paper}.experiment")
    except ModuleNotFoundError as cause:
        if cause.name != f"blindbayes_papers.{paper}.experiment":
            raise
        raise ConfigError(f"the experiment of {paper} is not part of this version") from None
    page: Path = module.reproduce(out, quick=quick)
    return page
