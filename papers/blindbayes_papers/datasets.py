"""The papers' data sets by name.

`load_dataset("adult")` reads the folder in BLINDBAYES_DATA if that is set, else the copy in this package (`data/`, six small
tables), else the cache, else downloads the table from OpenML into the cache and compares a SHA-256 of its cells.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv

from blindbayes.errors import ConfigError, DataError


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """The columns of a data set as the papers' codebooks name them, class last, and its source."""

    name: str
    target: str
    rows: int
    license: str
    columns: tuple[str, ...]
    openml: int | None = None  # id of a table that is downloaded; None: the package contains it
    openml_columns: tuple[str, ...] = ()  # OpenML's names in the same order, where they differ
    sha256: str = ""  # of the cells of a table that is downloaded, see `cell_digest`


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_DERMATOLOGY = (
    "erythema scaling definite_borders itching koebner_phenomenon polygonal_papules follicular_papules "
    "oral_mucosal_involvement knee_and_elbow_involvement scalp_involvement family_history melanin_incontinence "
    "eosinophils_in_infiltrate PNL_infiltrate "
    "fibrosis_papillary_dermis exocytosis acanthosis hyperkeratosis parakeratosis clubbing_rete_ridges elongation_rete_ridges "
    "thinning_suprapapillary_epidermis spongiform_pustule munro_microabcess focal_hypergranulosis disappearance_granular_layer "
    "vacuolisation_damage_basal_layer spongiosis saw_tooth_appearance_retes follicular_horn_plug perifollicular_parakeratosis "
    "inflammatory_mononuclear_infiltrate band_like_infiltrate age"
)
_MUSHROOM = (
    "cap-shape cap-surface cap-color bruises odor gill-attachment gill-spacing gill-size gill-color stalk-shape stalk-root "
    "stalk-surface-above-ring stalk-surface-below-ring stalk-color-above-ring stalk-color-below-ring veil-type veil-color "
    "ring-number ring-type spore-print-color population habitat"
)
_ALL = (
    DatasetInfo(
        "adult",
        "income",
        48842,
        "CC BY 4.0",
        _names(
            "age workclass fnlwgt education education-num marital-status occupation relationship race sex capital-gain "
            "capital-loss hours-per-week native-country"
        ),
        openml=1590,
        sha256="930f80fe6af9db7cfc2b06bf3ad745d0b96a2f87272b5977dd23b1d04c26d95b",
    ),
    DatasetInfo("car", "class", 1728, "CC BY 4.0", _names("buying maint doors persons lug_boot safety")),
    DatasetInfo("dermatology", "class", 366, "CC BY 4.0", _names(_DERMATOLOGY)),
    DatasetInfo("iris", "class", 150, "CC BY 4.0", _names("sepal_length sepal_width petal_length petal_width")),
    DatasetInfo("mushroom", "class", 8124, "CC BY 4.0", _names(_MUSHROOM)),
    DatasetInfo(
        "pima",
        "class",
        768,
        "public domain",
        _names("pregnancies glucose blood_pressure skin_thickness insulin bmi diabetes_pedigree age"),
    ),
    DatasetInfo(
        "seeds",
        "class",
        210,
        "CC BY 4.0",
        _names("area perimeter compactness kernel_length kernel_width asymmetry kernel_groove_length"),
    ),
    DatasetInfo(
        "skin",
        "class",
        245057,
        "CC BY 4.0",
        _names("B G R"),
        openml=1502,
        openml_columns=_names("V1 V2 V3"),
        sha256="73e15cadcbdbd64af451739387bc2436460c0cc0b04047ea60b21fb757f900bf",
    ),
)
DATASETS = {info.name: info for info in _ALL}
PACKAGED = Path(__file__).parent / "data"


def local_path(name: str) -> Path | None:
    """Return the file of a data set that needs no download, or None."""
    if name not in DATASETS:
        raise ConfigError(f"no dataset is named {name!r}; there are {', '.join(sorted(DATASETS))}")
    if folder := os.environ.get("BLINDBAYES_DATA"):
        places = [Path(folder) / f"{name}.csv"]
    else:
        places = [PACKAGED / f"{name}.csv", PACKAGED / f"{name}.csv.gz", _cache_folder() / f"{name}.csv"]
    return next((path for path in places if path.is_file()), None)


def dataset_path(name: str) -> Path:
    """Return the file of a data set: from BLINDBAYES_DATA, from the package, from the cache, or downloaded into the cache."""
    path, info = local_path(name), DATASETS[name]
    if path is not None:
        return path
    if os.environ.get("BLINDBAYES_DATA"):
        raise DataError(
            f"BLINDBAYES_DATA is set and holds no {name}.csv; put it there or unset the variable. {_expected(info)}"
        )
    if info.openml is None:
        raise DataError(f"the installation of blindbayes-papers lacks data/{name}.csv; install it again. {_expected(info)}")
    return _download(info, info.openml, _cache_folder() / f"{name}.csv")


def load_dataset(name: str) -> pa.Table:
    """Return a data set as an Arrow table of text columns, class column last; the codebook's rules parse numbers."""
    path, info = dataset_path(name), DATASETS[name]
    names = [*info.columns, info.target]
    options = pacsv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False)
    table = pacsv.read_csv(path, convert_options=options)
    if table.column_names != names:
        raise DataError(f"{name}.csv has other columns than it should have. {_expected(info)}")
    return table


def cell_digest(rows: Iterable[Iterable[object]]) -> str:
    """Return the SHA-256 of a table's cells, whatever the order of rows and the spelling of numbers (39, 39.0)."""
    lines = sorted(",".join(_spelling(str(cell).strip()) for cell in row) for row in rows)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _spelling(cell: str) -> str:
    try:
        return repr(float(cell))
    except ValueError:
        return cell


def _expected(info: DatasetInfo) -> str:
    source = f"It is dataset {info.openml} of OpenML" if info.openml else "It comes with blindbayes-papers"
    return (
        f"Expected: {info.rows:,} rows after the header {','.join((*info.columns, info.target))}; comma separated, missing "
        f"values as '?'. {source}, {info.license}"
    )


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "blindbayes"


def _download(info: DatasetInfo, number: int, cached: Path) -> Path:
    from sklearn.datasets import fetch_openml

    by_hand = f"set BLINDBAYES_DATA to a folder with {info.name}.csv, or leave it out with --quick. {_expected(info)}"
    try:
        bunch = fetch_openml(data_id=number, as_frame=True, parser="auto")
    except Exception as cause:  # the network has many ways to fail
        raise DataError(f"dataset {info.name!r} could not be downloaded ({type(cause).__name__}); {by_hand}") from None
    frame = bunch.data.astype(object).where(bunch.data.notna(), "?")
    if tuple(frame.columns) != (info.openml_columns or info.columns):
        raise DataError(f"dataset {info.name!r} arrived with other columns than it should have; {by_hand}")
    frame.columns = list(info.columns)
    frame[info.target] = [str(label) for label in bunch.target]
    if len(frame) != info.rows:
        raise DataError(f"dataset {info.name!r} arrived with another number of rows than it should have; {by_hand}")
    if cell_digest(frame.itertuples(index=False)) != info.sha256:
        raise DataError(f"dataset {info.name!r} arrived with other cells than it should have; {by_hand}")
    cached.parent.mkdir(parents=True, exist_ok=True)
    scratch = cached.with_suffix(".part")
    frame.to_csv(scratch, index=False)
    scratch.replace(cached)
    return cached
