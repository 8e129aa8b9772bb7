"""The image of deploy/Containerfile at work: compose's three sites train, and the pods of deploy/kubernetes start and back up.

`make image` builds it (out/image, or the folder that BLINDBAYES_IMAGE names); without it these tests are skipped.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import yaml

from blindbayes import Categorical, Codebook, NaiveBayes, Numeric
from support.containers import Network, of_pod, of_service, require_image
from support.engines import until

DEPLOY = Path(__file__).parents[2] / "deploy"
SITES = ["north", "south", "west"]
BOOK = Codebook("ill", ("no", "yes"), (Categorical("colour", ("blue", "red")), Numeric("age", 0, 120)))

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def did(network: Network, site: str, *command: str) -> str:
    """Run a command in a site's container, which must succeed, and return what it prints."""
    done = network.inside(site, *command)
    assert done.returncode == 0, f"{site}: {' '.join(command)}\n{done.stdout[-1500:]}{done.stderr[-1500:]}"
    return done.stdout


def require_confined(network: Network, name: str) -> None:
    """Check what the kernel says of a container's process, and that its root cannot be written."""
    state = did(network, name, "cat", "/proc/self/status")
    rights = dict(line.split(":", 1) for line in state.splitlines())
    assert rights["Uid"].split() == ["7440"] * 4
    assert all(int(rights[kind], 16) == 0 for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"))
    assert rights["NoNewPrivs"].strip() == "1"
    for path in ("/touched", "/opt/blindbayes/touched", "/usr/bin/touched"):
        assert "Read-only" in network.inside(name, "touch", path).stderr


def test_the_three_sites_of_the_trial_train_one_model_from_the_image(tmp_path: Path) -> None:
    image, trial = require_image(), yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    with Network(image, tmp_path, SITES) as network:
        for site in SITES:
            network.start(site, of_service(trial, site, image, tmp_path / "volumes", DEPLOY))
        for site in SITES:
            until(
                f"{site} is connected to the others: {network.log(site)[-1000:]}",
                lambda site=site: network.inside(site, "blindbayes", "site", "status").stdout.count(": connected") == 2,
                240,
            )
            require_confined(network, site)
        (tmp_path / "volumes" / "cards" / "codebook.toml").write_text(BOOK.to_toml())
        cards = [word for site in SITES for word in ("--card", f"/cards/{site}.toml")]
        made = ("study", "init", "/cards/study.toml", "--title", "Trial", "--codebook", "/cards/codebook.toml", *cards)
        did(network, "north", "blindbayes", *made)
        for site in SITES:
            did(network, site, "blindbayes", "study", "sign", "/cards/study.toml")
        digest = did(network, "north", "blindbayes", "study", "hash", "/cards/study.toml").strip()
        for site in SITES:
            did(network, site, "blindbayes", "site", "approve", "/cards/study.toml", "--hash", digest)
        did(network, "north", "blindbayes", "study", "run", "/cards/study.toml", "--out", "/site/release")
        did(network, "south", "blindbayes", "site", "log")
        for site in SITES:
            assert network.stop(site) in (0, 143)
    tables = [pa.csv.read_csv(tmp_path / "volumes" / site / "visits.csv") for site in SITES]
    pooled = NaiveBayes(BOOK).fit(pa.concat_tables(tables)).statistics_
    model = json.loads((tmp_path / "volumes" / "north" / "release" / "model.json").read_text())
    assert model["statistics"]["class_counts"] == pooled.class_counts.tolist()


def manifests(name: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text()) if each]


def test_the_pods_start_become_ready_restart_and_back_up(tmp_path: Path) -> None:
    image = require_image()
    (literals,) = yaml.safe_load((DEPLOY / "kubernetes" / "kustomization.yaml").read_text())["configMapGenerator"]
    settings = dict(line.split("=", 1) for line in literals["literals"])
    volumes = tmp_path / "volumes"
    for folder in ("blindbayes-tables", "secrets/blindbayes"):
        (volumes / folder).mkdir(parents=True)
    for secret in ("passphrase", "backup"):
        (volumes / "secrets" / "blindbayes" / secret).write_text(f"a long enough {secret}\n")
    table = pa.table({"ill": ["yes", "no"] * 40, "colour": ["red"] * 80, "age": list(range(80))})
    pa.parquet.write_table(table, volumes / "blindbayes-tables" / Path(settings["table"]).name)
    (agent,) = (each["spec"]["template"]["spec"] for each in manifests("site.yaml") if each["kind"] == "StatefulSet")
    (job,) = (
        each["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        for each in manifests("backup.yaml")
        if "jobTemplate" in each["spec"]
    )
    (init,), (served,), (backup,) = agent["initContainers"], agent["containers"], job["containers"]
    port = {each["name"]: each["containerPort"] for each in served["ports"]}
    with Network(image, tmp_path, ["pod", "backup"]) as network:

        def start() -> None:
            ended = network.run("init", of_pod(agent, init, "pod", image, volumes, settings))
            assert ended == 0, network.log("init")
            network.start("agent", of_pod(agent, served, "pod", image, volumes, settings))
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                asked = served[probe]["httpGet"]
                until(
                    f"{probe} passes: {network.log('agent')[-1000:]}",
                    lambda asked=asked: network.status_of("pod", port[asked["port"]], asked["path"]) == 200,
                    240,
                )

        start()
        require_confined(network, "agent")
        assert network.status_of("pod", port["metrics"], "/metrics") == 401
        assert network.status_of("pod", 7441, "/healthz") == 0  # staff's port: inside the pod alone
        keys = volumes / "blindbayes-site" / "folder" / "keys"
        assert keys.is_dir()
        ended = network.run("backup", of_pod(job, backup, "backup", image, volumes, settings))
        assert ended == 0, network.log("backup")
        (sealed,) = (volumes / "blindbayes-backups").iterdir()
        assert sealed.stat().st_size > 1000
        assert b"PRIVATE KEY" not in sealed.read_bytes()
        identity = (volumes / "blindbayes-site" / "folder" / "card.toml").read_bytes()
        assert network.stop("agent") in (0, 143)
        start()  # the claim is handed over again: the keys stay private, the identity the same
        assert (volumes / "blindbayes-site" / "folder" / "card.toml").read_bytes() == identity
        assert all(path.stat().st_mode & 0o077 == 0 for path in keys.iterdir())
