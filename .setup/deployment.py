"""What the tests of docker/ need: Helm, kubeconform with schemas, promtool and HAProxy."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from browser import install_packages
from failure import Failure

PROGRAMS = ["helm.sh/helm/v3/cmd/helm@v3.22.0", "github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0"]
# Modules that have the schemas of the kinds that they add to Kubernetes, with those that the chart uses.
KINDS = {
    "github.com/kedacore/keda/v2@v2.21.0": ["config/crd/bases/keda.sh_scaledobjects.yaml"],
    "github.com/prometheus-operator/prometheus-operator@v0.85.0": [
        "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
        "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
    ],
}
# Debian's packages, by the programs that are used.
PACKAGES = {"promtool": "prometheus", "haproxy": "haproxy"}


def on_the_path(program: str):
    """The path of a program, also of one that only root has on its PATH."""
    return shutil.which(program, path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin")


def install(folder: Path) -> None:
    """Into `folder`, which has a Python environment: `bin` and `kinds`, their sums checked by Go's checksum database."""
    missing = [package for program, package in PACKAGES.items() if not on_the_path(program)]
    if missing and not install_packages(*missing):
        raise Failure(f"There is no {' or '.join(missing)}. On Debian, as root: apt-get install {' '.join(missing)}")
    print("  Go builds Helm and kubeconform: some minutes", file=sys.stderr)
    go = {"env": {**os.environ, "GOBIN": str(folder / "bin"), "GOFLAGS": ""}, "cwd": folder}
    for program in PROGRAMS:
        if subprocess.run(["go", "install", program], **go).returncode:
            raise Failure(f"go could not install {program}; its output above says why.")
    (folder / "kinds").mkdir()
    for module, files in KINDS.items():
        found = subprocess.run(["go", "mod", "download", "-json", module], **go, stdout=subprocess.PIPE, text=True)
        if found.returncode:
            raise Failure(f"go could not download {module}; its output above says why.")
        source = Path(json.loads(found.stdout)["Dir"])
        for file in files:
            # The module cache is read-only.
            (folder / "kinds" / Path(file).name).write_bytes((source / file).read_bytes())
