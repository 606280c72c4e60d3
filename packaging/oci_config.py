"""Prints what an OCI runtime needs to run an image as packaging/compose/compose.yaml runs it.

python3 packaging/oci_config.py ROOTFS VOLUME NETWORK_NAMESPACE [NAME=VALUE ...] <image.json

In: the image's configuration as ``buildah inspect --type image`` prints it; where its file system
is mounted, the directory that is its volume, the network namespace; more of the environment.

The root file system is read-only, no capability is left, system calls are those of the default
profile of containers, and nothing but the volume and /dev/shm can be written.
"""

import json
import sys
from pathlib import Path
from typing import Any

SECCOMP = Path("/usr/share/containers/seccomp.json")
MASKED = "acpi kcore keys latency_stats timer_list timer_stats sched_debug scsi"
READ_ONLY = "asound bus fs irq sys sysrq-trigger"
NO_EXEC = ["nosuid", "noexec", "nodev"]
ARCHITECTURE = "amd64"


def mount(kind: str, place: str, *options: str, source: str = "") -> dict[str, Any]:
    return {
        "type": kind,
        "source": source or kind,
        "destination": place,
        "options": list(options),
    }


def system_calls(profile: dict[str, Any]) -> dict[str, Any]:
    """The profile for a process without capabilities; it is written for all machines at once."""
    rules = []
    for rule in profile["syscalls"]:
        includes, excludes = rule.get("includes") or {}, rule.get("excludes") or {}
        if includes.get("caps") or ARCHITECTURE in excludes.get("arches", []):
            continue
        if includes.get("arches") and ARCHITECTURE not in includes["arches"]:
            continue
        known = {key: rule[key] for key in ("names", "action", "args", "errnoRet") if rule.get(key)}
        rules.append(known)
    return {
        "defaultAction": profile["defaultAction"],
        "defaultErrnoRet": profile.get("defaultErrnoRet", 1),
        "architectures": ["SCMP_ARCH_X86_64"],
        "syscalls": rules,
    }


def runtime_config(
    image: dict[str, Any], root: str, volume: str, network: str, more: list[str]
) -> dict[str, Any]:
    user, _, group = image["User"].partition(":")
    [place] = image["Volumes"]
    return {
        "ociVersion": "1.0.2",
        "hostname": "penstock",
        "root": {"path": root, "readonly": True},
        "process": {
            "terminal": False,
            "user": {"uid": int(user), "gid": int(group)},
            "args": [*image["Entrypoint"], *image["Cmd"]],
            "env": [*image["Env"], *more],
            "cwd": image["WorkingDir"],
            "capabilities": {},
            "noNewPrivileges": True,
        },
        "mounts": [
            mount("proc", "/proc", *NO_EXEC),
            mount("tmpfs", "/dev", "nosuid", "strictatime", "mode=755", "size=65536k"),
            mount("devpts", "/dev/pts", "nosuid", "noexec", "newinstance", "ptmxmode=0666"),
            mount("tmpfs", "/dev/shm", *NO_EXEC, "mode=1777", "size=65536k"),
            mount("sysfs", "/sys", *NO_EXEC, "ro"),
            mount("bind", place, "rbind", "rw", source=volume),
        ],
        "linux": {
            "namespaces": [
                *({"type": kind} for kind in ("pid", "ipc", "uts", "mount")),
                {"type": "network", "path": network},
            ],
            "maskedPaths": [f"/proc/{name}" for name in MASKED.split()],
            "readonlyPaths": [f"/proc/{name}" for name in READ_ONLY.split()],
            "seccomp": system_calls(json.loads(SECCOMP.read_text())),
        },
    }


def main() -> None:
    image = json.load(sys.stdin)["Docker"]["config"]
    root, volume, network, *more = sys.argv[1:]
    json.dump(runtime_config(image, root, volume, network, more), sys.stdout, indent=1)


if __name__ == "__main__":
    main()
