"""The machine a run was made on, and what a process of it occupies."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import platform
import shutil
import subprocess

from orbitmq import __file__ as orbitmq_file
from orbitmq import __version__
from orbitmq.protocol.message.crc import crc32

MIB = 1 << 20
GIB = 1 << 30


@dataclasses.dataclass(frozen=True, slots=True)
class Machine:
    """The environment, which must be the same for two figures to be comparable."""

    cpu: str
    cores: int
    memory_gib: float
    system: str
    file_system: str
    python: str
    crc32: str
    orbitmq: str
    source: str
    """The code that was measured; see ``source_state``."""


def describe_machine(directory: str) -> Machine:
    """This machine, with the file system that holds ``directory``."""
    return Machine(
        cpu=_cpu_model(),
        cores=os.cpu_count() or 0,
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB, 1),
        system=f"{platform.system()} {platform.release()}",
        file_system=_file_system(directory),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        crc32=crc32.__module__,
        orbitmq=__version__,
        source=source_state(),
    )


def load_average() -> float:
    """The load average of the last minute."""
    return round(os.getloadavg()[0], 2)


def _cpu_model() -> str:
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def source_state() -> str:
    """The commit of the package and a digest of its files, which tells when they differ from it or change."""
    package = os.path.dirname(orbitmq_file)
    digest = hashlib.sha256()
    for folder, folders, names in os.walk(package):
        folders.sort()
        for name in sorted(names):
            if name.endswith(".py"):
                with open(os.path.join(folder, name), "rb") as file:
                    digest.update(name.encode() + b"\0" + file.read())
    try:
        commit = _git(package, "rev-parse", "--short", "HEAD").strip()
        if _git(package, "status", "--porcelain", "--", package):
            commit += " with changes"
    except (OSError, subprocess.CalledProcessError):
        commit = "not a checkout"
    return f"{commit}, files {digest.hexdigest()[:8]}"


def _git(directory: str, *arguments: str) -> str:
    command = ("git", "-C", directory, *arguments)
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _file_system(directory: str) -> str:
    """The type of the file system at the longest mount point above a directory."""
    directory = os.path.realpath(directory)
    best, found = "", "unknown"
    with open("/proc/self/mounts", encoding="utf-8") as lines:
        for line in lines:
            _, point, kind, *_ = line.split(" ")
            is_above = directory == point or directory.startswith(point.rstrip("/") + "/")
            if is_above and len(point) >= len(best):
                best, found = point, kind
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory of this process in MiB."""

    anonymous: float
    """Heap and stacks: what the process needs for itself."""
    mapped: float
    """Mapped pages of the page cache, which the operating system reclaims when it needs memory."""


def own_memory() -> Memory:
    """The resident memory of this process now."""
    kib: dict[str, int] = {}
    with open("/proc/self/smaps_rollup", encoding="utf-8") as lines:
        for line in lines:
            name, _, value = line.partition(":")
            if value.endswith("kB\n"):
                kib[name] = int(value.split()[0])
    return Memory(kib["Anonymous"] / 1024, (kib["Rss"] - kib["Anonymous"]) / 1024)


def own_open_files() -> int:
    """The number of open descriptors of this process."""
    # Listing the directory takes one itself.
    return len(os.listdir("/proc/self/fd")) - 1


def free_space(directory: str) -> int:
    """Bytes that may still be written below a directory."""
    return shutil.disk_usage(directory).free


def evict(directory: str) -> None:
    """Write out the files below a directory and drop them from the page cache, as a restart of the machine does.

    Pages that some process has mapped stay.
    """
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                fd = os.open(os.path.join(folder, name), os.O_RDONLY)
            except FileNotFoundError:
                continue  # a running server replaces small files
            try:
                os.fsync(fd)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)
