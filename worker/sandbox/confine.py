"""Confine this process and become a program: `confine.py POLICY PROGRAM...`.

POLICY is JSON: `limits` ({name of an RLIMIT: number}), `read` and `write` (paths, for Landlock;
absent: no Landlock) and `sockets` (false: refuse them by seccomp). The module runs alone, by
`python -I`, inside a sandbox without our own modules, so it imports none of them.

Sources: landlock(7) and linux/landlock.h, seccomp(2) and linux/seccomp.h, bpf in linux/filter.h.
"""

import ctypes
import errno
import json
import os
import platform
import resource
import stat
import struct
import sys

FAILED = 78  # EX_CONFIG: the confinement itself failed

_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAPBSET_DROP = 24
_SECCOMP_MODE_FILTER = 2

_LANDLOCK_CREATE_RULESET = 444
_LANDLOCK_ADD_RULE = 445
_LANDLOCK_RESTRICT_SELF = 446
_LANDLOCK_VERSION = 1
_PATH_BENEATH = 1
# File rights by the ABI version that introduced them (linux/landlock.h).
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}

# Refused system calls by architecture: AUDIT_ARCH number, then socket, ptrace, process_vm_readv and
# process_vm_writev; io_uring_setup (which could open sockets past the filter), pidfd_getfd, bpf
# and userfaultfd share or nearly share their numbers.
_CALLS = {
    "x86_64": (0xC000003E, (41, 101, 310, 311, 321, 323, 425, 438)),
    "aarch64": (0xC00000B7, (198, 117, 270, 271, 280, 282, 425, 438)),
}
_X32 = 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Apply the policy, then become the program."""
    policy, program = json.loads(sys.argv[1]), sys.argv[2:]
    try:
        for name, value in policy["limits"].items():
            number = getattr(resource, name)
            _, hard = resource.getrlimit(number)
            most = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(number, (most, most))
        _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
        if policy.get("read") is not None:
            drop_capabilities()
            restrict_files(policy["read"], policy["write"])
        if not policy.get("sockets", True):
            refuse_calls()
    except OSError as error:
        sys.stderr.write(f"the sandbox could not be made: {error}\n")
        raise SystemExit(FAILED) from None
    try:
        os.execvp(program[0], program)
    except OSError as error:
        sys.stderr.write(f"{program[0]} cannot be started: {error.strerror}\n")
        raise SystemExit(127) from None


def landlock_abi() -> int:
    """Return the kernel's Landlock version; 0 if it has none."""
    return max(0, int(_libc.syscall(_LANDLOCK_CREATE_RULESET, None, 0, _LANDLOCK_VERSION)))


def seccomp_known() -> bool:
    """Tell whether this module knows this machine's system call numbers."""
    return platform.machine() in _CALLS and sys.platform == "linux"


def drop_capabilities() -> None:
    """Drop all capabilities for good, if there are any (root in a container)."""
    for capability in range(64):
        _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    header = struct.pack("=Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
    _check(_libc.capset(header, bytes(24)), "capset")


def restrict_files(read: list[str], write: list[str]) -> None:
    """Deny every file except those below `read` (to read and run) and `write` (all access)."""
    abi = landlock_abi()
    if not abi:
        raise OSError(errno.ENOSYS, "the kernel has no Landlock")
    handled = _RIGHTS[max(version for version in _RIGHTS if version <= abi)]
    attributes = struct.pack("=Q", handled)
    if abi >= 4:
        attributes += struct.pack("=Q", 3)  # binding and connecting TCP
    if abi >= 6:
        attributes += struct.pack("=Q", 3)  # abstract sockets and signals to the outside
    ruleset = _libc.syscall(_LANDLOCK_CREATE_RULESET, attributes, len(attributes), 0)
    _check(ruleset, "landlock_create_ruleset")
    for paths, rights in ((read, _EXECUTE | _READ_FILE | _READ_DIR), (write, handled)):
        for path in paths:
            _allow(ruleset, path, rights & handled)
    _check(_libc.syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(os.fstat(place).st_mode):
        rights &= _OF_FILES
    rule = struct.pack("=Qi", rights, place)
    _check(_libc.syscall(_LANDLOCK_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0), f"landlock {path}")
    os.close(place)


def refuse_calls() -> None:
    """Make sockets, debugging and the ways around them fail with EPERM."""
    if not seccomp_known():
        raise OSError(errno.ENOSYS, f"no system call numbers for {platform.machine()}")
    arch, calls = _CALLS[platform.machine()]
    load, equal, above, answer = 0x20, 0x15, 0x35, 0x06
    refuse, allow, kill = 0x00050000 | errno.EPERM, 0x7FFF0000, 0x80000000
    last = len(calls) + 3  # instructions from the first comparison to the refusal, minus 1
    program = [
        (load, 0, 0, 4),  # seccomp_data.arch
        (equal, 1, 0, arch),
        (answer, 0, 0, kill),
        (load, 0, 0, 0),  # seccomp_data.nr
        (above, last - 2, 0, _X32),
        *((equal, last - 3 - n, 0, call) for n, call in enumerate(calls)),
        (answer, 0, 0, allow),
        (answer, 0, 0, refuse),
    ]
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("@HP", len(program), ctypes.addressof(buffer))
    _check(_libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header, 0, 0), "seccomp")


def _check(result: int, what: str) -> None:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


if __name__ == "__main__":
    main()
