"""The papers' datasets by name.

`load_dataset("adult")` takes the file from the folder in BLINDBAYES_DATA, else from the cache, else downloads it from OpenML
into the cache.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv

from blindbayes.errors import ConfigError, DataError


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """Where a dataset comes from and what stands in it: the columns as the codebooks of the papers name them, class last."""

    name: str
    target: str
    rows: int
    openml: int  # data id there
    license: str
    columns: tuple[str, ...]
    openml_columns: tuple[str, ...] = ()  # as OpenML names them, in the same order, where that differs
    openml_labels: Mapping[str, str] = field(default_factory=dict)  # OpenML's class labels -> ours, where they differ


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
_DERMATOLOGY_OPENML = (
    "erythema scaling definite_borders itching koebner_phenomenon polygonal_papules follicular_papules "
    "oral_mucosal_involvement knee_and_elbow_involvement scalp_involvement family_history melanin_incontinence "
    "eosinophils_in_the_infiltrate "
    "PNL_infiltrate fibrosis_of_the_papillary_dermis exocytosis acanthosis hyperkeratosis parakeratosis "
    "clubbing_of_the_rete_ridges elongation_of_the_rete_ridges thinning_of_the_suprapapillary_epidermis spongiform_pustule "
    "munro_microabcess focal_hypergranulosis disappearance_of_the_granular_layer vacuolisation_and_damage_of_basal_layer "
    "spongiosis saw-tooth_appearance_of_retes follicular_horn_plug perifollicular_parakeratosis "
    "inflammatory_monoluclear_inflitrate band-like_infiltrate Age"
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
        1590,
        "CC BY 4.0",
        _names(
            "age workclass fnlwgt education education-num marital-status occupation relationship race sex capital-gain "
            "capital-loss hours-per-week native-country"
        ),
    ),
    DatasetInfo("car", "class", 1728, 40975, "CC BY 4.0", _names("buying maint doors persons lug_boot safety")),
    DatasetInfo("dermatology", "class", 366, 35, "CC BY 4.0", _names(_DERMATOLOGY), _names(_DERMATOLOGY_OPENML)),
    DatasetInfo(
        "iris",
        "class",
        150,
        61,
        "CC BY 4.0",
        _names("sepal_length sepal_width petal_length petal_width"),
        _names("sepallength sepalwidth petallength petalwidth"),
    ),
    DatasetInfo(
        "mushroom", "class", 8124, 24, "CC BY 4.0", _names(_MUSHROOM), _names(_MUSHROOM.replace("bruises", "bruises%3F"))
    ),
    DatasetInfo(
        "pima",
        "class",
        768,
        37,
        "public domain",
        _names("pregnancies glucose blood_pressure skin_thickness insulin bmi diabetes_pedigree age"),
        _names("preg plas pres skin insu mass pedi age"),
        {"tested_negative": "0", "tested_positive": "1"},
    ),
    DatasetInfo(
        "seeds",
        "class",
        210,
        1499,
        "CC BY 4.0",
        _names("area perimeter compactness kernel_length kernel_width asymmetry kernel_groove_length"),
        _names("V1 V2 V3 V4 V5 V6 V7"),
    ),
    DatasetInfo("skin", "class", 245057, 1502, "CC BY 4.0", _names("B G R"), _names("V1 V2 V3")),
)
DATASETS = {info.name: info for info in _ALL}


def dataset_path(name: str) -> Path:
    """The CSV of a dataset: from BLINDBAYES_DATA, from the cache, or downloaded into the cache."""
    if name not in DATASETS:
        raise ConfigError(f"no dataset is named {name!r}; there are {', '.join(sorted(DATASETS))}")
    info = DATASETS[name]
    folder = os.environ.get("BLINDBAYES_DATA")
    if folder:
        path = Path(folder) / f"{name}.csv"
        if path.is_file():
            return path
        raise DataError(
            f"BLINDBAYES_DATA is set and holds no {name}.csv; put it there or unset the variable. {_expected(info)}"
        )
    cached = _cache_folder() / f"{name}.csv"
    return cached if cached.is_file() else _download(info, cached)


def load_dataset(name: str) -> pa.Table:
    """A dataset as an Arrow table of text columns, class column last; numbers are parsed by the codebook's rules."""
    path = dataset_path(name)
    with path.open("rb") as file:
        header = file.readline().decode("utf-8-sig").rstrip("\r\n").split(",")
    info = DATASETS[name]
    if header != [*info.columns, info.target]:
        raise DataError(f"{name}.csv has other columns than it should have. {_expected(info)}")
    options = pacsv.ConvertOptions(column_types=dict.fromkeys(header, pa.string()), strings_can_be_null=False)
    return pacsv.read_csv(path, convert_options=options)


def _expected(info: DatasetInfo) -> str:
    return (
        f"Expected: {info.rows:,} rows after the header {','.join((*info.columns, info.target))}; comma separated, missing "
        f"values as '?'. It is dataset {info.openml} of OpenML, {info.license}"
    )


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "blindbayes"


def _download(info: DatasetInfo, cached: Path) -> Path:
    from sklearn.datasets import fetch_openml

    try:
        bunch = fetch_openml(data_id=info.openml, as_frame=True, parser="auto")
    except Exception as cause:  # the network has many ways to fail
        raise DataError(
            f"dataset {info.name!r} could not be downloaded ({type(cause).__name__}); "
            f"set BLINDBAYES_DATA to a folder with {info.name}.csv. {_expected(info)}"
        ) from None
    frame = bunch.data.copy()
    if tuple(frame.columns) != (info.openml_columns or info.columns):
        raise DataError(f"dataset {info.name!r} arrived with other columns than it should have")
    frame.columns = list(info.columns)
    labels = [str(label) for label in bunch.target]
    frame[info.target] = [info.openml_labels.get(label, label) for label in labels]
    if len(frame) != info.rows:
        raise DataError(f"dataset {info.name!r} arrived with another number of rows than it should have")
    cached.parent.mkdir(parents=True, exist_ok=True)
    scratch = cached.with_suffix(".part")
    frame.to_csv(scratch, index=False, na_rep="?")
    scratch.replace(cached)
    return cached
