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


def install_packages(*packages: str) -> bool:
    """Debian's packages; needs root."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return False
    apt = ["apt-get", "install", "--yes", "--no-install-recommends", *packages]
    quiet = {"env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, "stdout": subprocess.DEVNULL}
    update = ["apt-get", "update"]
    return not subprocess.run(update, **quiet).returncode and not subprocess.run(apt, **quiet).returncode


def install(pinned: Path, folder: Path) -> None:
    """Chromium; Firefox with PulseAudio for its sound, where they install; and in `folder` the packages that `pinned` lists
    in its package-lock.json, their sums checked by npm."""
    if not shutil.which("npm"):
        raise Failure("There is no npm. On Debian, as root: apt-get install nodejs npm")
    if not chromium():
        print("  chromium, by apt-get", file=sys.stderr)
        if not install_packages("chromium"):
            raise Failure("There is no Chromium. On Debian, as root: apt-get install chromium")
    if not (shutil.which("firefox-esr") or shutil.which("firefox")) or not shutil.which("pulseaudio"):
        print("  firefox-esr and pulseaudio, by apt-get", file=sys.stderr)
        if not install_packages("firefox-esr", "pulseaudio"):
            print("  not installed: the tests in Firefox will be skipped, or be without sound", file=sys.stderr)
    folder.mkdir(parents=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(pinned / name, folder)
    npm = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"]
    if subprocess.run(npm, cwd=folder, stdout=subprocess.DEVNULL).returncode:
        raise Failure(f"npm could not install {pinned}; its output above says why.")
    fetch = ["cargo", "fetch", "--quiet", "--locked", "--manifest-path", pinned / "snippet/Cargo.toml"]
    if shutil.which("cargo") and subprocess.run(fetch).returncode:
        raise Failure(f"cargo could not fetch {pinned}/snippet; its output above says why.")
