"""A machine with a slow disk and a wall clock that jumps: a library loaded before libc.

    machine = HostileMachine(directory)
    LiveBroker(directory, environment=machine.environment)
    machine.set(disk_bytes_per_s=1e6)           while the process runs
    machine.set(clock_offset_s=-3600)           and its disk is quick again

Real files, real syncs; only every ``pwritev`` and ``pwrite`` sleeps first, as long as a disk of so
many bytes a second would take.  What the process reads as the wall clock is off; its monotonic
clock is not.  Both stand in a file that the library maps.  It needs a C compiler.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static const volatile double *state;  /* bytes per second, 0 = as quick as it is; seconds off */

__attribute__((constructor)) static void map_state(void) {
    const char *path = getenv("HOSTILE_MACHINE");
    int fd = path ? open(path, O_RDONLY) : -1;
    void *mapped = fd < 0 ? MAP_FAILED : mmap(NULL, 16, PROT_READ, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
    if (mapped != MAP_FAILED) state = mapped;
}

static void sleep_s(double seconds) {
    struct timespec pause = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
    nanosleep(&pause, NULL);
}

static void take_time(size_t bytes) {
    double rate = state ? state[0] : 0;
    if (rate > 0) sleep_s((double)bytes / rate);
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

static double off_s(void) { return state ? state[1] : 0; }

int clock_gettime(clockid_t id, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(id, now);
    if (code == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
        now->tv_sec += (time_t)off_s();
    return code;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    static int (*real)(struct timeval *restrict, void *restrict);
    if (!real) real = dlsym(RTLD_NEXT, "gettimeofday");
    int code = real(now, zone);
    if (code == 0) now->tv_sec += (time_t)off_s();
    return code;
}

time_t time(time_t *where) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (where) *where = now.tv_sec;
    return now.tv_sec;
}
"""


def missing_reason() -> str | None:
    """Why there can be none here."""
    return None if shutil.which("cc") else "no C compiler (Debian: apt install gcc)"


class HostileMachine:
    """See the head of this file.  ``environment``: of the processes that run on it."""

    def __init__(self, directory: Path, disk_bytes_per_s: float = 0.0) -> None:
        self._state = directory / "hostile_machine.state"
        self.set(disk_bytes_per_s)
        source, library = directory / "hostile_machine.c", directory / "hostile_machine.so"
        source.write_text(_SOURCE)
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True
        )
        self.environment = {"LD_PRELOAD": str(library), "HOSTILE_MACHINE": str(self._state)}

    def set(self, disk_bytes_per_s: float = 0.0, clock_offset_s: float = 0.0) -> None:
        """0 = as they are.  The process sees it at its next write, and next look at the clock."""
        data = struct.pack("dd", disk_bytes_per_s, clock_offset_s)
        if self._state.exists():
            with self._state.open("r+b") as file:
                file.write(data)
        else:
            self._state.write_bytes(data)
