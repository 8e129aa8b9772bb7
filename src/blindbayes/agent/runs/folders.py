"""A site's runs on disk: `runs/<id>/` holds the journals of a run under way and the outcome of an ended one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from blindbayes.errors import ConfigError
from blindbayes.io.files import erase, make_private_folder, write_whole
from blindbayes.io.untrusted import read_json_table
from blindbayes.study.tasks.task import StudyTask
from blindbayes.study.tasks.traits import ModelForm, Support

NAME = 32  # digits of a run's own name, of a model and of a base
EVALUATION = 48  # digits of the id of an evaluation: the model's name, then random ones
VALIDATION = 40  # digits of the id of a cross-validation


def require_run_id(run_id: str) -> str:
    """Return a run's id. Raises `ConfigError` unless it is fit to name a file."""
    if not 16 <= len(run_id) <= 64 or not set(run_id) <= set("0123456789abcdef"):
        raise ConfigError("a run id has 16 to 64 hexadecimal digits")
    return run_id


@dataclass(frozen=True, slots=True)
class RunId:
    """A run's id, as the task of its study reads it."""

    kind: Literal["training", "evaluation", "prediction"]
    name: str  # its own: later runs of the study go on from it by this name
    base: str | None = None  # the name of the run that a training goes on from
    model: str = ""  # the name of the run whose model is evaluated or asked; of a cross-validation empty


def read_run_id(run_id: str, task: StudyTask) -> RunId:
    """Parse a run's id, which the proposing site chose. Raises `ConfigError` for any other form."""
    name, before = run_id[-NAME:], run_id[:NAME]
    if set(run_id) <= set("0123456789abcdef"):
        if len(run_id) == NAME:
            return RunId("training", name)
        if len(run_id) == EVALUATION and Support.EVALUATION in task.supports:
            return RunId("evaluation", name, model=before)
        if len(run_id) == VALIDATION and Support.EVALUATION in task.supports:
            return RunId("evaluation", name)
        if len(run_id) == 2 * NAME and Support.INCREMENTS in task.supports:
            return RunId("training", name, base=before)
        if len(run_id) == 2 * NAME and task.model is ModelForm.SHARED:
            return RunId("prediction", name, model=before)
    raise ConfigError("no run of this study can have that id")


@dataclass(frozen=True, slots=True)
class RunFolders:
    """The folder `runs/`."""

    root: Path

    def folder(self, run_id: str) -> Path:
        return self.root / require_run_id(run_id)

    def outcome(self, run_id: str) -> dict[str, Any] | None:
        """Return how a run ended, or None."""
        try:
            outcome = read_json_table((self.folder(run_id) / "outcome.json").read_bytes(), "outcome.json")
        except FileNotFoundError:
            return None
        except ConfigError:  # an end that cannot be read is an end
            return {"state": "failed", "message": "how the run ended cannot be read"}
        return outcome

    def end(self, run_id: str, outcome: dict[str, Any]) -> None:
        """Write a run's end. Its id is never used again."""
        folder = make_private_folder(self.folder(run_id))
        write_whole(folder / "outcome.json", json.dumps(outcome, sort_keys=True).encode())

    def keep_request(self, run_id: str, request: msgspec.Struct) -> None:
        """Store what staff asked for, in case the run is resumed."""
        write_whole(make_private_folder(self.folder(run_id)) / "request.json", msgspec.json.encode(request))

    def request(self, run_id: str) -> dict[str, Any] | None:
        """Return what staff asked for, if the run is a classification."""
        try:
            return read_json_table((self.folder(run_id) / "request.json").read_bytes(), "request.json")
        except FileNotFoundError:
            return None

    def erase_leftovers(self) -> None:
        """Erase the journals that a crash left behind after the end of a run."""
        for path in sorted((self.root).glob("*/outcome.json")):
            self.erase_journals(path.parent.name)

    def erase_journals(self, run_id: str) -> None:
        """Erase what could replay a run, the keys first."""
        for path in self.folder(run_id).glob("*/key"):
            erase(path)
        for path in self.folder(run_id).glob("*/journal"):
            path.unlink(missing_ok=True)
        erase(self.folder(run_id) / "request.json")  # it may name a database with its password

    def interrupted(self) -> list[str]:
        """Return the runs that have a journal and did not end."""
        return [
            path.name
            for path in sorted((self.root).glob("*"))
            if not (path / "outcome.json").exists() and self.has_begun(path.name)
        ]

    def has_begun(self, run_id: str) -> bool:
        return any(self.folder(run_id).glob("*/journal"))
