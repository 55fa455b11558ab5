"""The browser that the tests of the console's pages use, and the packages that drive it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from failure import Failure

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def chromium():
    """The path of the browser, if the machine has one."""
    return next(filter(None, map(shutil.which, CHROMIUM)), None)


def install_chromium() -> None:
    """Debian's package; needs root."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise Failure("There is no Chromium. On Debian, as root: apt-get install chromium")
    apt = ["apt-get", "install", "--yes", "--no-install-recommends", "chromium"]
    quiet = {"env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, "stdout": subprocess.DEVNULL}
    if subprocess.run(["apt-get", "update"], **quiet).returncode or subprocess.run(apt, **quiet).returncode:
        raise Failure("apt-get could not install chromium; its output above says why.")


def install(pinned: Path, folder: Path) -> None:
    """Chromium, and in `folder` the packages that `pinned` lists in its package-lock.json, their sums checked by npm."""
    if not shutil.which("npm"):
        raise Failure("There is no npm. On Debian, as root: apt-get install nodejs npm")
    if not chromium():
        print("  chromium, by apt-get", file=sys.stderr)
        install_chromium()
    folder.mkdir(parents=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(pinned / name, folder)
    npm = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"]
    if subprocess.run(npm, cwd=folder, stdout=subprocess.DEVNULL).returncode:
        raise Failure(f"npm could not install {pinned}; its output above says why.")
