"""Build what an index accepts and check it: `make release-check` runs this with the tools of requirements-release.lock.

    python tools/release.py build dist              # sdist, wheels of blindbayes (x86-64, aarch64, pure) and of the papers
    python tools/release.py check dist              # the same bytes twice, bills of materials, licences, manifests, use
    python tools/release.py emulate dist ROOT       # use the aarch64 wheel under qemu; ROOT: Debian's arm64 Python

`check` needs no forge. It installs the repaired wheel into an empty environment of each Python (3.11 or later) on the path,
with its dependencies from the package index, and uses it there. The pure wheel is used with the first of them.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import importlib.metadata
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGETS = {  # the compiler of each wheel; auditwheel refuses what needs a newer glibc than manylinux2014 promises
    "x86_64": "cc",
    "aarch64": f"{sys.executable} -m ziglang cc -target aarch64-linux-gnu.2.17",
    "any": "none",
}
KUBERNETES = ("1.25", "1.37")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
ALLOWED = re.compile(
    r"Apache|BSD|MIT|ISC|PSF|Python Software|Mozilla Public License 2|MPL-2|Zlib|HPND|Unlicense|CC0|Public Domain|LGPL|Lesser"
)
TESTS_ONLY = {"jpmml_evaluator", "phe"}  # copyleft; tests compare with them, nothing of the package imports them
READ = {"skops": "MIT"}  # its metadata name no licence; its LICENSE file was read
USE = """
import sys
import pyarrow as pa
from blindbayes import Categorical, Codebook, NaiveBayes, Numeric, PrivateNaiveBayes, RowStudy
from blindbayes.crypto import kernels

book = Codebook("y", ("a", "b"), (Categorical("c", ("x", "z")), Numeric("n", 0, 10)))
table = pa.table({"y": ["a", "b"] * 50, "c": ["x", "z", "z", "x"] * 25, "n": [float(row % 10) for row in range(100)]})
pooled = NaiveBayes(book).fit(pa.concat_tables([table] * 3)).statistics_
joint = RowStudy(book).simulate({"north": table, "south": table, "west": table}).model.statistics_
assert joint.class_counts.tolist() == pooled.class_counts.tolist()
PrivateNaiveBayes(book, epsilon=1.0).fit(table).predict(table)
assert (kernels.active() is None) == ("pure" in sys.argv), f"kernels of this wheel: {kernels.active()}"
print("trained on Python", sys.version.split()[0], "kernels", kernels.active())
"""
DEBIAN = "trixie"  # its arm64 Python runs the aarch64 wheel


def build(out: Path) -> None:
    """Build the sdist, three wheels and the papers' distribution of the last commit into a folder."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as raw:
        sources = exported(Path(raw) / "sources")
        for folder in (sources, sources / "papers"):
            hatch(folder, "sdist", out)
        hatch(sources / "papers", "wheel", out)
    for compiler in TARGETS.values():
        with tempfile.TemporaryDirectory() as raw:
            hatch(exported(Path(raw) / "sources"), "wheel", Path(raw) / "dist", CC=compiler)
            (wheel,) = (Path(raw) / "dist").iterdir()
            if compiler == "none":
                shutil.copy(wheel, out)
            else:
                run("auditwheel", "repair", "-w", str(out), str(wheel))


def hatch(folder: Path, kind: str, out: Path, **environment: str) -> None:
    """Build one distribution."""
    run(sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(out), cwd=folder, **environment)


def exported(folder: Path) -> Path:
    """Write the last commit to a new folder: what is not committed is in no release."""
    folder.mkdir()
    packed = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout  # noqa: S607
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def check(out: Path) -> None:
    """Check a folder that `build` wrote; the first fault ends the program with a message."""
    with tempfile.TemporaryDirectory() as again:
        build(Path(again))
        differ = [name for name, digest in digests(Path(again)).items() if digests(out).get(name) != digest]
        require(not differ, f"two builds of one commit differ: {', '.join(differ)}")
    print(f"reproducible: {len(digests(out))} files, built twice, are equal byte for byte")  # noqa: T201
    run("twine", "check", "--strict", *map(str, sorted(out.iterdir())))
    for wheel in sorted(out.glob("blindbayes-*.whl")):
        require_bill(wheel)
    wheels = {name: [path.name for path in out.glob(f"blindbayes-*{name}.whl")] for name in TARGETS}
    require(all(len(found) == 1 for found in wheels.values()), f"one wheel per target is expected: {wheels}")
    require_licences()
    require_manifests()
    (native,), (pure,) = (list(out.glob(f"blindbayes-*{name}.whl")) for name in ("x86_64", "none-any"))
    used = [use(version, native) for version in PYTHONS]
    require(any(used), "no Python of " + ", ".join(PYTHONS) + " is on the path")
    use(PYTHONS[used.index(True)], pure, "pure")


def digests(folder: Path) -> dict[str, str]:
    """Return the hash of each file by its name."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def require_bill(wheel: Path) -> None:
    """Check the bills of materials inside a wheel (ours, and auditwheel's of what it did) against the schema of CycloneDX."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    with zipfile.ZipFile(wheel) as archive:
        bills = {path: archive.read(path).decode() for path in archive.namelist() if re.search(r"\.dist-info/sboms/.+", path)}
    require(any(path.endswith("/blindbayes.cdx.json") for path in bills), f"{wheel.name} has no bill of materials")
    for path, text in bills.items():
        version = SchemaVersion.from_version(json.loads(text)["specVersion"])
        problem = JsonStrictValidator(version).validate_str(text)
        require(problem is None, f"{wheel.name}: {path} is not valid CycloneDX: {problem}")


def licences() -> Iterator[tuple[str, str]]:
    """Yield the name and licence of each distribution in the environment of the package (.venv)."""
    asked = [ROOT / ".venv" / "bin" / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603
    for each in importlib.metadata.distributions(path=[site]):
        entry = each.metadata
        classes = [line.rpartition("::")[2] for line in entry.get_all("Classifier") or () if line.startswith("License")]
        stated = (entry.get("License") or "").strip().split("\n")[0]
        classes += [READ[entry["Name"]]] if entry["Name"] in READ else []
        yield entry["Name"], " / ".join(filter(None, (entry.get("License-Expression"), *classes, stated))).strip()


def require_licences() -> None:
    """Check that every dependency has a licence that may be used beside Apache-2.0."""
    asked = {name: licence for name, licence in licences() if name not in TESTS_ONLY}
    refused = sorted(f"{name} ({licence or 'none stated'})" for name, licence in asked.items() if not ALLOWED.search(licence))
    require(not refused, "licences to look at: " + ", ".join(refused))
    print(f"licences: {len(asked)} distributions, all permissive or weak copyleft")  # noqa: T201


def require_manifests() -> None:
    """Check deploy/kubernetes against the API schemas of the oldest and the newest Kubernetes that are known here."""
    import kubernetes_validate
    import yaml

    count = 0
    for path in sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml")):
        for resource in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if resource["kind"] != "Kustomization":
                for version in KUBERNETES:
                    kubernetes_validate.validate(resource, version, strict=True)
                count += 1
    print(f"kubernetes: {count} resources match the schemas of {' and '.join(KUBERNETES)}")  # noqa: T201


def interpreter(version: str) -> str | None:
    """Return the path of a Python that starts: a shim of pyenv may stand for one that is not chosen."""
    for folder in os.get_exec_path():
        path = Path(folder) / f"python{version}"
        if path.is_file() and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:  # noqa: S603
            return str(path)
    return None


def use(version: str, wheel: Path, *kind: str) -> bool:
    """Install a wheel into an empty environment of one Python version and train with it. Returns False without that Python."""
    python = interpreter(version)
    if python is None:
        require(os.environ.get("CI") != "true", f"python{version} is not on the path")
        print(f"python{version}: skipped, it is not on the path")  # noqa: T201
        return False
    with tempfile.TemporaryDirectory() as folder:
        run(python, "-m", "venv", folder)
        run(f"{folder}/bin/pip", "install", "--quiet", "--no-compile", str(wheel))
        run(f"{folder}/bin/python", "-c", USE, *kind, cwd=Path(folder))
        run(f"{folder}/bin/blindbayes", "--version", "-v", cwd=Path(folder))
    return True


def emulate(out: Path, root: Path) -> None:
    """Train with the aarch64 wheel under qemu, which needs no ARM machine and runs nothing of the root while it is made."""
    if not root.exists():
        made = root.with_name(f"{root.name}.part")
        shutil.rmtree(made, ignore_errors=True)
        run("mmdebstrap", "--variant=extract", "--arch=arm64", "--include=python3,libstdc++6", DEBIAN, str(made))
        (made / "lib").symlink_to("usr/lib")
        made.rename(root)
    (wheel,), (python,) = out.glob("blindbayes-*aarch64.whl"), root.glob("usr/bin/python3.[0-9]*")
    with tempfile.TemporaryDirectory() as folder:
        tags = [f"--platform=manylinux_2_{minor}_aarch64" for minor in range(17, 40)] + ["--platform=manylinux2014_aarch64"]
        version = python.name.removeprefix("python")
        run(sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--only-binary=:all:", "--target", folder,
            "--python-version", version, "--implementation", "cp", *tags, str(wheel))  # fmt: skip
        run("qemu-aarch64-static", "-L", str(root), "-E", f"PYTHONPATH={folder}", str(python), "-c", USE, cwd=Path(folder))


def run(*command: str, cwd: Path = ROOT, **environment: str) -> None:
    """Run a command and end the program if it fails."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    fixed = {"PATH": path, "SOURCE_DATE_EPOCH": commit_time()}
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **fixed, **environment}, check=False)  # noqa: S603
    require(done.returncode == 0, f"{' '.join(command[:4])} ended with {done.returncode}")


@functools.cache
def commit_time() -> str:
    """Return the time of the last commit, which all archives carry."""
    command = ["git", "log", "-1", "--format=%ct"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603


def require(holds: bool, message: str) -> None:
    """End the program with a message unless a condition holds."""
    if not holds:
        sys.exit(f"release: {message}")


def main() -> None:
    """Build, check or emulate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["build", "check", "emulate"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("root", type=Path, nargs="?", default=ROOT / "out" / "aarch64", help="of emulate; made if missing")
    options = parser.parse_args()
    folder = options.folder.resolve()
    if options.step == "emulate":
        emulate(folder, options.root.resolve())
    else:
        {"build": build, "check": check}[options.step](folder)


if __name__ == "__main__":
    main()
