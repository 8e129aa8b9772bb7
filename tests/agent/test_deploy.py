"""The files in deploy/: they parse, say what they should, and run on a read-only root with a /tmp that executes nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from blindbayes import __version__
from blindbayes.console.port import metrics, probes
from blindbayes.testing.loopback import free_port
from support.locks import pins
from support.sites import Office, bounded

DEPLOY = Path(__file__).parents[2] / "deploy"
IMAGE_TOOL = (DEPLOY.parent / "tools" / "image.py").read_text()
UNITS = sorted((DEPLOY / "systemd").iterdir())


def test_the_image_is_glibc_not_root_and_starts_the_agent() -> None:
    lines = [
        line for line in (DEPLOY / "Containerfile").read_text().replace("\\\n", "").splitlines() if line and line[0] != "#"
    ]
    known = {"ARG", "FROM", "WORKDIR", "COPY", "RUN", "USER", "VOLUME", "ENV", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
    assert {line.split()[0] for line in lines} <= known
    assert all("alpine" not in line and ":latest" not in line for line in lines if line.startswith("FROM"))
    assert [line for line in lines if line.startswith("USER")] == ["USER 7440"]
    after = lines[lines.index("USER 7440") :]
    assert not any(line.startswith(("RUN", "COPY")) for line in after)
    for name in ("ENTRYPOINT", "CMD"):
        command = json.loads(next(line for line in after if line.startswith(name)).partition(" ")[2])
        assert all(isinstance(word, str) for word in command)
    copied = {name for line in lines if line.startswith("COPY") and "--from" not in line for name in line.split()[1:-1]}
    assert all((DEPLOY.parent / name).exists() for name in copied)
    assert copied >= {"pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "src"}  # what a wheel is made from
    assert copied == set(re.findall(r'"([\w.-]+)"', re.search(r"^CONTEXT = .*$", IMAGE_TOOL, re.M)[0]))


def test_the_image_holds_what_an_agent_imports_in_pinned_versions() -> None:
    whole, part = pins("requirements.lock"), pins("requirements-image.lock")
    assert all(whole[pin] == hashes for pin, hashes in part.items())
    optional = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    needed = {re.split(r"[<>=\[]", line)[0] for extra in ("agent", "oidc", "sql", "postgres") for line in optional[extra]}
    assert needed - {"blindbayes"} <= {library for library, _ in part}


@pytest.mark.slow
def test_what_the_image_copies_makes_a_wheel_whose_commands_start_in_a_bare_folder(tmp_path: Path) -> None:
    context, wheels, installed, bare = (tmp_path / name for name in ("src", "wheels", "installed", "bare"))
    lines = (DEPLOY / "Containerfile").read_text().splitlines()
    for line in (line for line in lines if line.startswith("COPY") and "--from" not in line):
        *names, to = line.split()[1:]
        for name in names:
            whole, place = DEPLOY.parent / name, context / to if len(names) == 1 else context / to / name
            place.parent.mkdir(parents=True, exist_ok=True)
            if whole.is_dir():
                shutil.copytree(whole, place, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
            else:
                shutil.copy(whole, place)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    quick = {**os.environ, "CC": "/bin/false"}  # the kernels compile for half a minute; tests/crypto/kernels builds them
    command = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels), str(context)]
    subprocess.run(command, env=quick, check=True, timeout=120)
    command = [
        *pip,
        "install",
        "--no-deps",
        "--no-index",
        "--find-links",
        str(wheels),
        "--target",
        str(installed),
        "blindbayes",
    ]
    subprocess.run(command, check=True, timeout=120)
    bare.mkdir()
    words = [json.loads(line.partition(" ")[2]) for name in ("ENTRYPOINT", "CMD") for line in lines if line.startswith(name)]
    health = json.loads(next(line for line in lines if line.startswith("HEALTHCHECK")).partition("CMD ")[2])
    for entry in (words[0] + words[1], health):
        told = subprocess.run(
            [str(installed / "bin" / entry[0]), *entry[1:], "--help"],
            cwd=bare,
            env={"PYTHONPATH": str(installed), "HOME": "/nowhere", "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert told.returncode == 0, told.stderr[-2000:]
        assert "Usage" in told.stdout
    assert not list(bare.iterdir())


def test_the_three_sites_of_the_trial_are_confined_and_know_each_other() -> None:
    trial = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    assert set(trial["services"]) == {"north", "south", "west"}
    for name, service in trial["services"].items():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["environment"]["SITE"] == name == service["hostname"]
        assert set(service["environment"]["OTHERS"].split()) == set(trial["services"]) - {name}
        mounted = [volume.split(":")[0] for volume in service["volumes"]]
        assert {each for each in mounted if not each.startswith(".")} <= set(trial["volumes"])
        assert all((DEPLOY / each).exists() for each in mounted if each.startswith("."))
    subprocess.run(["sh", "-n", str(DEPLOY / "trial.sh")], check=True)


def resources() -> Iterator[dict[str, Any]]:
    """The resources of deploy/kubernetes that are applied to a cluster."""
    listed = yaml.safe_load((DEPLOY / "kubernetes" / "kustomization.yaml").read_text())["resources"]
    assert {path.name for path in (DEPLOY / "kubernetes").iterdir()} == {"kustomization.yaml", *listed}
    for name in listed:
        yield from yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text())


def pods() -> dict[str, dict[str, Any]]:
    """The specs of the pods, by the kind that makes them."""
    found = {}
    for each in resources():
        if each["kind"] == "StatefulSet":
            found["StatefulSet"] = each["spec"]["template"]["spec"]
        elif each["kind"] == "CronJob":
            found["CronJob"] = each["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    return found


def test_pods_keep_to_the_restricted_profile_and_get_secrets_by_reference() -> None:
    assert set(pods()) == {"StatefulSet", "CronJob"}
    assert "Secret" not in {each["kind"] for each in resources()}
    for pod in pods().values():
        assert pod["automountServiceAccountToken"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
        person = pod["securityContext"]
        assert (person["runAsNonRoot"], person["runAsUser"], person["fsGroup"]) == (True, 7440, 7440)
        assert person["fsGroupChangePolicy"] == "OnRootMismatch"
        assert person["seccompProfile"] == {"type": "RuntimeDefault"}
        kinds = {each["name"]: set(each) - {"name"} for each in pod["volumes"]}
        assert set().union(*kinds.values()) <= {"persistentVolumeClaim", "secret", "emptyDir"}
        for container in [*pod.get("initContainers", []), *pod["containers"]]:
            rights = container["securityContext"]
            assert rights["readOnlyRootFilesystem"] is True
            assert rights["allowPrivilegeEscalation"] is False
            assert rights["capabilities"] == {"drop": ["ALL"]}
            given = {each["name"]: each["value"] for each in container["env"] if "value" in each}
            assert set(given) <= {"BLINDBAYES_CONFIG", "BLINDBAYES_PASSPHRASE_FILE", "BLINDBAYES_SITE__METRICS"}
            for each in container["volumeMounts"]:
                assert each.get("readOnly", False) == (kinds[each["name"]] == {"secret"} or each["name"] == "tables")
            assert {"memory"} <= set(container["resources"]["limits"])


def test_probes_and_network_policies_name_ports_and_paths_of_an_agent() -> None:
    (agent,) = pods()["StatefulSet"]["containers"]
    ports = {each["name"]: each["containerPort"] for each in agent["ports"]}
    asked = {agent[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert asked <= {route.path for route in probes(None, lambda _: False)}  # type: ignore[arg-type]
    assert {agent[probe]["httpGet"]["port"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")} <= set(ports)
    (service,) = (each["spec"] for each in resources() if each["kind"] == "Service")
    assert {each["targetPort"] for each in service["ports"]} == {"sites"}
    policies = {each["metadata"]["name"]: each["spec"] for each in resources() if each["kind"] == "NetworkPolicy"}
    assert all(spec["policyTypes"] == ["Ingress", "Egress"] for spec in policies.values())
    closed = policies["blindbayes-nothing"]
    assert not {"ingress", "egress"} & set(closed)
    assert closed["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "blindbayes"}
    assert {port["port"] for rule in policies["blindbayes-agent"]["ingress"] for port in rule["ports"]} == set(ports.values())


def test_the_image_of_the_manifests_is_this_release() -> None:
    (image,) = yaml.safe_load((DEPLOY / "kubernetes" / "kustomization.yaml").read_text())["images"]
    assert image["newTag"] == __version__
    assert {each["image"] for pod in pods().values() for each in pod["containers"]} == {image["name"]}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze: apt install systemd")
def test_the_units_verify_and_leave_little_exposed(tmp_path: Path) -> None:
    for unit in UNITS:
        text = unit.read_text().replace("/opt/blindbayes/bin/blindbayes", "/bin/true")
        (tmp_path / unit.name.replace("@", "@north")).write_text(text)
    for unit in tmp_path.iterdir():
        found = subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60)
        assert "north" not in found.stderr, found.stderr
    agent = str(DEPLOY / "systemd" / "blindbayes@.service")
    told = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=25", agent], capture_output=True, text=True, timeout=60
    )
    assert told.returncode == 0, told.stdout[-300:]


def test_alerts_and_dashboard_name_metrics_that_a_site_gives(tmp_path: Path) -> None:
    async def test() -> None:
        async with Office(tmp_path, ("north", "south", "west")) as office:
            agent = office.agents["north"]
            agent.router.refused_frames["south"] = 1
            agent.home.audit.append("backed up", who="Ada")
            given = set(re.findall(r"^(blindbayes_\w+)", metrics(agent), re.M))
            rules = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())["groups"][0]["rules"]
            panels = json.loads((DEPLOY / "dashboard.json").read_text())["panels"]
            asked = [rule["expr"] for rule in rules] + [each["expr"] for panel in panels for each in panel["targets"]]
            named = {name for text in asked for name in re.findall(r"blindbayes_\w+", text)}
            assert named <= given, named - given
            assert len(named) > 10

    bounded(test)


_BARE = """
set -e
mount -t tmpfs -o noexec,nosuid,nodev tmpfs /tmp
mount -t tmpfs -o noexec,nosuid,nodev tmpfs /dev/shm
mkdir -p "$ROOM"
mount -t tmpfs -o noexec,nosuid,nodev tmpfs "$ROOM"
mount -o remount,bind,ro /
if touch /usr/touched 2>/dev/null; then echo "the root can be written"; exit 9; fi
ip link set lo up 2>/dev/null || true
cd "$ROOM"
mkdir cards
start() {
  mkdir $1
  SITE=$1 OTHERS="$2" SITE_FOLDER="$ROOM/$1" CARDS="$ROOM/cards" HOST=127.0.0.1 PORT=$3 OPERATOR=127.0.0.1:0 HOME=/nowhere \\
    sh "$TRIAL" >$1.out 2>$1.err &
  echo $! >> started
}
start north "south west" $P1
start south "north west" $P2
start west "north south" $P3
for try in $(seq 1 80); do
  if blindbayes site health --config north >/dev/null 2>&1 &&
     [ "$(blindbayes site status --config north | grep -c ': connected')" = 2 ]; then echo all connected; break; fi
  sleep 1
done
tail -n 3 ./*.err | cut -c1-300
kill $(cat started)
wait
"""


@pytest.mark.slow
def test_the_trial_runs_on_a_read_only_root_with_a_temporary_folder_without_exec(tmp_path: Path) -> None:
    allowed = subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False) if shutil.which("unshare") else None
    if allowed is None or allowed.returncode:
        pytest.skip("needs unshare with user namespaces")
    if any(Path(place).resolve().is_relative_to("/tmp") for place in (DEPLOY, sys.prefix)):
        pytest.skip("this tree lies in /tmp, which the test covers")
    ports = {f"P{number}": str(free_port()) for number in (1, 2, 3)}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, **ports, "TRIAL": str(DEPLOY / "trial.sh"), "PATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    environment["ROOM"] = str(tmp_path)
    environment["BLINDBAYES_SITE__MIN_FREE_MB"] = "1"
    found = subprocess.run(
        ["unshare", "-rm", "sh", "-c", _BARE], env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert "all connected" in found.stdout, found.stdout[-3000:] + found.stderr[-2000:]
