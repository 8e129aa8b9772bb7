"""A release folder as an MLflow model of the flavour `python_function`.

MLflow stores a copy of the folder (model file, statement, leak report, signatures, checksums) and the name of this module,
which loads it. Nothing is pickled: `_load_pyfunc` verifies the checksums and signatures of the copy and parses `model.json`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from blindbayes import __version__
from blindbayes._lazy import need
from blindbayes.codebook import Codebook
from blindbayes.errors import ConfigError, DataError
from blindbayes.io.files import read_folder
from blindbayes.io.untrusted import read_json_table
from blindbayes.naive_bayes.load import from_record
from blindbayes.naive_bayes.model_file import parse_model
from blindbayes.report.checksums import verify_files

if TYPE_CHECKING:
    from blindbayes.naive_bayes.base import BaseNaiveBayes

_AGAIN = "ask for the release again"


class ReleasedModel:
    """The model that MLflow loads: `predict` returns classes, or probabilities if `params` asks for them."""

    def __init__(self, model: BaseNaiveBayes) -> None:
        self.model = model

    def predict(self, data: Any, params: Mapping[str, Any] | None = None) -> Any:
        """Return what `predict` of the estimator returns; with `params={"probabilities": True}` that of `predict_proba`."""
        wanted = bool((params or {}).get("probabilities", False))
        return self.model.predict_proba(data) if wanted else self.model.predict(data)


def _load_pyfunc(path: str) -> ReleasedModel:
    """Load the copied release; MLflow calls this. Raises `DataError` if a file was changed."""
    files = read_folder(path)
    verify_files(files)
    return ReleasedModel(_model(files))


def save_to_mlflow(
    release: str | os.PathLike[str], path: str | os.PathLike[str], *, metadata: Mapping[str, str] | None = None
) -> None:
    """Write a release folder as an MLflow model folder at `path`.

    Parameters
    ----------
    release : path
        A release folder with a model; its checksums and signatures are verified first.
    path : path
        The folder to write.
    metadata : mapping, optional
        Further entries of the model's metadata, beside the hashes of study and model.
    """
    with _without_example():
        need("mlflow.pyfunc").save_model(path=os.fspath(path), **_arguments(release, metadata))


def log_to_mlflow(
    release: str | os.PathLike[str],
    name: str = "model",
    *,
    registered_model_name: str | None = None,
    metadata: Mapping[str, str] | None = None,
) -> Any:
    """Log a release folder as a model of the active MLflow run, and tag the run with the hashes of study and model.

    Parameters
    ----------
    release : path
        A release folder with a model; its checksums and signatures are verified first.
    name : str, default="model"
        Name of the model in the run.
    registered_model_name : str, optional
        Register the model under this name too.
    metadata : mapping, optional
        Further entries of the model's metadata, and tags of the run.

    Returns
    -------
    mlflow.models.model.ModelInfo
    """
    arguments = _arguments(release, metadata)
    tags = arguments["metadata"]
    with _without_example():
        logged = need("mlflow.pyfunc").log_model(name=name, registered_model_name=registered_model_name, tags=tags, **arguments)
    need("mlflow").set_tags(tags)
    return logged


@contextlib.contextmanager
def _without_example() -> Iterator[None]:
    """Hide that MLflow misses rows as an example: a release has none."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*An input example was not provided")
        yield


def _arguments(release: str | os.PathLike[str], metadata: Mapping[str, str] | None) -> dict[str, Any]:
    files = read_folder(release)
    verified = verify_files(files)
    if "model.json" not in files:
        raise ConfigError("the folder holds no model.json: a model in shares cannot be loaded by one party")
    tags = _tags(files) | ({"blindbayes.signed_by": ", ".join(verified.signers)} if verified.signers else {})
    return {
        "loader_module": __name__,
        "data_path": os.fspath(release),
        "pip_requirements": [f"blindbayes=={__version__}", "pandas>=2"],
        "signature": _signature(_model(files).codebook_),
        "metadata": {**tags, **(metadata or {})},
    }


def _model(files: Mapping[str, bytes]) -> BaseNaiveBayes:
    try:
        return from_record(parse_model(files["model.json"].decode("utf-8")))
    except (KeyError, UnicodeDecodeError):
        raise DataError(f"the folder holds no readable model.json; {_AGAIN}") from None


def _tags(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return the tags of a release: hash of the study and run between sites, codebook, model file, epsilon."""
    tags = {"blindbayes.model_sha256": hashlib.sha256(files["model.json"]).hexdigest()}
    for file, names in (("run.json", ("study", "run", "codebook")), ("statement.json", ("codebook", "epsilon", "study"))):
        if file in files:
            table = read_json_table(files[file], file, error=DataError, hint=_AGAIN)
            tags |= {f"blindbayes.{name}": str(table[name]) for name in names if table.get(name) is not None}
    return tags


def _signature(codebook: Codebook) -> Any:
    """Return the columns as MLflow's schema. The codebook checks the cells, so that each column is of any type."""
    types, models = need("mlflow.types.schema"), need("mlflow.models")
    columns = types.Schema([types.ColSpec(types.AnyType(), name) for name in codebook.names])
    asked = types.ParamSchema([types.ParamSpec("probabilities", types.DataType.boolean, False)])
    return models.ModelSignature(inputs=columns, params=asked)
