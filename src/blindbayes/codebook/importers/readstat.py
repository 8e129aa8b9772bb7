"""Child process that reads the metadata of an SPSS or Stata file: ReadStat is C, and a damaged file may crash it.

`python -m blindbayes.codebook.importers.readstat PATH` prints JSON: a list of columns, never a row.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

READERS = {".sav": "read_sav", ".zsav": "read_sav", ".dta": "read_dta"}
_SECONDS, _MEMORY = 60, 4 << 30


def columns(path: Path) -> list[dict[str, Any]]:
    """Return the facts about each column in the file's header."""
    import pyreadstat

    _, facts = getattr(pyreadstat, READERS[path.suffix.lower()])(str(path), metadataonly=True, user_missing=True)
    return [
        {
            "name": name,
            "label": facts.column_names_to_labels.get(name) or "",
            "labels": list(facts.variable_value_labels.get(name, {}).items()),
            "format": facts.original_variable_types.get(name) or "",
            "type": facts.readstat_variable_types.get(name) or "",
            "measure": facts.variable_measure.get(name) or "",
            "missing": [[_end(span["lo"]), _end(span["hi"])] for span in facts.missing_ranges.get(name, ())],
        }
        for name in facts.column_names
    ]


def _end(value: Any) -> Any:
    """Return an end of a range. LOWEST and HIGHEST become the largest numbers, since JSON has no infinity."""
    return max(-sys.float_info.max, min(sys.float_info.max, value)) if isinstance(value, float) else value


def main(path: str) -> int:
    """Print the columns; exit with 3 if the file cannot be read, with 4 if pyreadstat is missing."""
    with contextlib.suppress(ImportError, ValueError, OSError):  # not on every system
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    try:
        text = json.dumps(columns(Path(path)))
    except ImportError:
        return 4
    except Exception:
        return 3
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
