"""One peer's side of a comparison, run by the python of that peer's own environment: `python theirs.py PEER`.

For every line on stdin it does the work once and prints the CPU seconds it took, as JSON. It imports nothing of blindbayes.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Work = Callable[[], dict[str, Any]]


def scikit_learn(task: dict[str, Any]) -> Work:
    """GaussianNB, fit and predict."""
    import numpy as np
    from sklearn.naive_bayes import GaussianNB

    x, y = _table(task, np)

    def work() -> dict[str, Any]:
        found = GaussianNB().fit(x, y).predict(x)
        return {"accuracy": float((found == y).mean())}

    return work


def diffprivlib(task: dict[str, Any]) -> Work:
    """GaussianNB with differential privacy, at the epsilon that it claims."""
    import numpy as np
    from diffprivlib.models import GaussianNB

    x, y = _table(task, np)
    low, high = [task["low"]] * x.shape[1], [task["high"]] * x.shape[1]

    def work() -> dict[str, Any]:
        found = GaussianNB(epsilon=task["epsilon"], bounds=(low, high)).fit(x, y).predict(x)
        return {"accuracy": float((found == y).mean())}

    return work


def _table(task: dict[str, Any], np: Any) -> tuple[Any, Any]:
    """The same rows at both sides: two classes, normal columns."""
    rng = np.random.default_rng(task["seed"])
    y = rng.integers(0, 2, task["rows"])
    x = np.clip(rng.normal(0.7 * y[:, None], 1.5, (task["rows"], task["columns"])), task["low"], task["high"]).round(2)
    return x, y


def phe(task: dict[str, Any]) -> Work:
    """Encrypt whole numbers under one public key."""
    from phe import paillier

    public, _ = paillier.generate_paillier_keypair(n_length=task["bits"])
    return lambda: {"done": len([public.raw_encrypt(number) for number in range(task["count"])])}


def openmined_psi(task: dict[str, Any]) -> Work:
    """The size of an intersection, both parties' work."""
    import private_set_intersection.python as psi

    first = [f"person {number}" for number in range(task["count"])]
    second = [f"person {number}" for number in range(task["count"] // 2, task["count"] + task["count"] // 2)]

    def work() -> dict[str, Any]:
        server, client = psi.server.CreateWithNewKey(False), psi.client.CreateWithNewKey(False)
        setup = server.CreateSetupMessage(1e-9, len(first), second, psi.DataStructure.RAW)
        answer = server.ProcessRequest(client.CreateRequest(first))
        return {"size": client.GetIntersectionSize(setup, answer)}

    return work


def opendp(task: dict[str, Any]) -> Work:
    """Discrete Laplace noise on a vector of counts."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    measurement = dp.m.make_laplace(*space, scale=task["scale"])
    counts = [0] * task["count"]
    return lambda: {"done": len(measurement(counts))}


def declearn(task: dict[str, Any]) -> Work:
    """Joye-Libert: one party's encryption of a vector of counts."""
    from declearn.secagg.joye_libert import encrypt

    numbers = [random.randrange(1 << 20) for _ in range(task["count"])]
    modulus = int(task["modulus"])  # of the same size as ours; its own default has 1,024 bits
    secret = random.SystemRandom().getrandbits(2 * modulus.bit_length())
    return lambda: {"done": len([encrypt(number, at, secret, modulus) for at, number in enumerate(numbers)])}


def mpyc(task: dict[str, Any]) -> Work:
    """Three processes: the class with the largest of shared scores, for a batch of instances. Started anew each time; the
    clock runs inside, from inputs to classes, and the first party's time stands for each of the three."""
    command = [sys.executable, str(Path(__file__).with_name("mpyc_party.py")), "-M3", "--no-log"]
    told = {**os.environ, "PEER_TASK": json.dumps(task)}

    def work() -> dict[str, Any]:
        found = subprocess.run(command, env=told, capture_output=True, text=True, check=True, timeout=600)
        line = next(line for line in found.stdout.splitlines() if line.startswith("{"))
        return {"cpu": 3 * json.loads(line)["cpu"]}

    return work


PEERS: dict[str, Callable[[dict[str, Any]], Work]] = {
    "scikit-learn": scikit_learn,
    "diffprivlib": diffprivlib,
    "python-paillier": phe,
    "openmined.psi": openmined_psi,
    "OpenDP": opendp,
    "DecLearn": declearn,
    "MPyC": mpyc,
}


def main() -> None:
    work = PEERS[sys.argv[1]](json.loads(sys.argv[2]))
    work()  # once to warm up
    print(json.dumps({"ready": True}), flush=True)
    for _ in sys.stdin:
        begun = time.process_time()
        found = work()
        print(json.dumps({"cpu": time.process_time() - begun, **found}), flush=True)


if __name__ == "__main__":
    main()
