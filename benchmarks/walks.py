"""How many functions, modules and packages of blindbayes each common task runs through.

Every task runs once to warm imports and caches, then once under a profile hook. A function counts once, however often it runs.

python benchmarks/walks.py
python benchmarks/walks.py --packages
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import msgspec
from _measured import Options

import blindbayes
from blindbayes import ColumnStudy, Ledger, Limits, NaiveBayes, PrivateNaiveBayes, RowStudy
from blindbayes.datasets import hospitals

ROOT = Path(blindbayes.__file__).parent


@contextmanager
def functions_called() -> Iterator[set[CodeType]]:
    called: set[CodeType] = set()

    def hook(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(ROOT)) and not frame.f_code.co_name.startswith("<"):
            called.add(frame.f_code)

    threading.setprofile(hook)
    sys.setprofile(hook)
    try:
        yield called
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


def walks(rows: int, folder: Path) -> dict[str, Callable[[], Any]]:
    table = hospitals(rows)
    book, parts = table.codebook, table.tables
    whole = next(iter(parts.values()))
    names = [feature.name for feature in book.features]
    left, right = names[: len(names) // 2], names[len(names) // 2 :]
    columns = ColumnStudy(msgspec.structs.replace(book, variance_floor=0.01), limits=Limits(min_cell=10))
    by_columns = {"left": whole.select([*left, book.target]), "right": whole.select(right)}
    ledger = Ledger.create(folder / "ledger", epsilon="100")
    return {
        "fit": lambda: NaiveBayes(book).fit(whole),
        "private fit": lambda: PrivateNaiveBayes(book, epsilon=1.0, ledger=ledger.path).fit(whole),
        "simulate rows": lambda: RowStudy(book).simulate(parts),
        "simulate columns": lambda: columns.simulate(by_columns),
    }


def main() -> None:
    parser = Options(__doc__)
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--quick", action="store_true", help="fewer rows")
    parser.add_argument("--packages", action="store_true", help="functions by package")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(f"{'walk':20} functions  modules  packages")
        for name, walk in walks(200 if options.quick else options.rows, Path(folder)).items():
            walk()
            with functions_called() as called:
                walk()
            paths = {Path(code.co_filename).relative_to(ROOT) for code in called}
            packages = Counter(Path(code.co_filename).relative_to(ROOT).parts[0] for code in called)
            print(f"{name:20} {len(called):9}  {len(paths):7}  {len(packages):8}")
            if options.packages:
                print("   ", ", ".join(f"{package} {count}" for package, count in packages.most_common()))


if __name__ == "__main__":
    main()
