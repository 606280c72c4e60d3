"""A disk that takes its time: a library loaded before libc makes writes to files slow.

Real files, real syncs; only every write of ``pwritev`` and ``pwrite`` sleeps first, as long as a
disk of so many bytes a second would take.  It needs a C compiler.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static void take_time(size_t bytes) {
    const char *rate = getenv("SLOW_DISK_BYTES_PER_S");
    double seconds = rate ? (double)bytes / atof(rate) : 0;
    struct timespec pause = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
    nanosleep(&pause, NULL);
}

static size_t size_of(const struct iovec *parts, int count) {
    size_t bytes = 0;
    for (int i = 0; i < count; i++) bytes += parts[i].iov_len;
    return bytes;
}

#define SLOW_PWRITEV(NAME)                                                     \
    ssize_t NAME(int fd, const struct iovec *parts, int count, off_t offset) { \
        ssize_t (*real)(int, const struct iovec *, int, off_t) =               \
            dlsym(RTLD_NEXT, #NAME);                                           \
        take_time(size_of(parts, count));                                      \
        return real(fd, parts, count, offset);                                 \
    }
#define SLOW_PWRITEV2(NAME)                                                    \
    ssize_t NAME(int fd, const struct iovec *parts, int count, off_t offset, int flags) { \
        ssize_t (*real)(int, const struct iovec *, int, off_t, int) =          \
            dlsym(RTLD_NEXT, #NAME);                                           \
        take_time(size_of(parts, count));                                      \
        return real(fd, parts, count, offset, flags);                          \
    }
#define SLOW_PWRITE(NAME)                                                      \
    ssize_t NAME(int fd, const void *data, size_t size, off_t offset) {        \
        ssize_t (*real)(int, const void *, size_t, off_t) =                    \
            dlsym(RTLD_NEXT, #NAME);                                           \
        take_time(size);                                                       \
        return real(fd, data, size, offset);                                   \
    }

SLOW_PWRITEV(pwritev)
SLOW_PWRITEV(pwritev64)
SLOW_PWRITEV2(pwritev2)
SLOW_PWRITEV2(pwritev64v2)
SLOW_PWRITE(pwrite)
SLOW_PWRITE(pwrite64)
"""


def missing_reason() -> str | None:
    """Why there can be none here."""
    return None if shutil.which("cc") else "no C compiler (Debian: apt install gcc)"


def environment(directory: Path, bytes_per_s: int) -> dict[str, str]:
    """With these variables a process has such a disk."""
    source, library = directory / "slow_disk.c", directory / "slow_disk.so"
    source.write_text(_SOURCE)
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True
    )
    return {"LD_PRELOAD": str(library), "SLOW_DISK_BYTES_PER_S": str(bytes_per_s)}
