"""Confine this process and become a program: `confine.py POLICY... -- PROGRAM...`.

The words of POLICY:

- `RLIMIT_NAME=NUMBER`: a resource limit.
- `tasks=NUMBER`: processes and threads that the user may have beyond those that are there, where
  those can be counted.
- `parent=NUMBER`: the process that starts this one, with which the program ends.
- `user=NUMBER`: the user id to take; `search` with it: it may pass folders that are closed to it.
- `processor=NUMBER`: a processor that it may run on; without any, all that there are.
- `read=PATH`, `write=PATH`: files for Landlock; without any there is no Landlock.
- `shared`: others have the same user id.
- `proxy=NUMBER`: a socket that listens in the program's network is handed over through the
  descriptor of this number.
- `filter=HEX`: the seccomp filter, which `refused_calls.py` makes.

The module runs alone, by `python -I`, inside a sandbox without our own modules, so it imports none
of them; and few others, since each program waits for it. For the same reason it is short: it is
compiled at each start.

Sources: landlock(7) and linux/landlock.h, namespaces(7), seccomp(2), capabilities(7).
"""

import ctypes
import errno
import os
import resource
import stat
import struct
import sys

FAILED = 78  # EX_CONFIG: the confinement itself failed
PROXY_PORT = 3128
NICE = 19  # a reduction gives way to everything else that wants the processor

_PR_SET_PDEATHSIG = 1
_SIGKILL = 9  # the module `signal` takes long to import
_PR_SET_KEEPCAPS = 8
_PR_SET_SECCOMP = 22
_PR_CAPBSET_READ = 23
_PR_CAPBSET_DROP = 24
_PR_SET_SECUREBITS = 28
_NO_SETUID_FIXUP = 1 << 2
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2
_SECCOMP_MODE_FILTER = 2
_INSTRUCTION = 8  # bytes of struct sock_filter
_CAP_DAC_READ_SEARCH = 2
_CAPABILITY_VERSION = 0x20080522  # _LINUX_CAPABILITY_VERSION_3

_FIRST = {"user": 0xEFFFFFFD, "pid": 0xEFFFFFFC}  # inodes of namespaces, linux/proc_ns.h

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

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Apply the policy, then become the program."""
    end = sys.argv.index("--")
    policy, program = sys.argv[1:end], sys.argv[end + 1 :]
    given = [(name, value) for name, _, value in (word.partition("=") for word in policy)]
    words = dict(given)
    shared = "shared" in words
    try:
        if "user" in words:
            become(int(words["user"]), search="search" in words)
        else:
            drop_capabilities()
        # Afterwards: the kernel forgets it when a process takes another user id (prctl(2)).
        if "parent" in words:
            end_with(int(words["parent"]))
        if shared or "search" in words:
            limit_tasks(int(words["tasks"]), shared=shared)
        else:  # in bubblewrap
            limit("RLIMIT_NPROC", int(words["tasks"]))
        for name, value in given:
            if name.startswith("RLIMIT_"):
                limit(name, int(value))
        gain_nothing()
        if "read" in words:
            restrict_files(
                [value for name, value in given if name == "read"],
                [value for name, value in given if name == "write"],
            )
        os.setpriority(os.PRIO_PROCESS, 0, NICE)
        if "proxy" in words:
            hand_over_listener(int(words["proxy"]))
        if "processor" in words:
            os.sched_setaffinity(0, [int(value) for name, value in given if name == "processor"])
        refuse_calls(bytes.fromhex(words["filter"]))
    except OSError as error:
        sys.stderr.write(f"the sandbox could not be made: {error}\n")
        raise SystemExit(FAILED) from None
    try:
        os.execvp(program[0], program)
    except OSError as error:
        sys.stderr.write(f"{program[0]} cannot be started: {error.strerror}\n")
        raise SystemExit(127) from None


def end_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends; end at once if it has ended."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0), "parent-death signal")
    if os.getppid() != parent:
        raise SystemExit(FAILED)


def hand_over_listener(number: int) -> None:
    """Listen in the network of this sandbox, and send the socket to the proxy outside."""
    import socket  # here, because most programs do not wait for it

    with socket.create_server(("127.0.0.1", PROXY_PORT), backlog=16) as listener:
        for side in (socket.SO_RCVBUF, socket.SO_SNDBUF):  # the connections' buffers, too
            listener.setsockopt(socket.SOL_SOCKET, side, 2**17)
        with socket.socket(fileno=number) as to:
            socket.send_fds(to, [b"l"], [listener.fileno()])


def limit(name: str, value: int) -> None:
    """Set a resource limit for good; one that is lower already stays."""
    number = getattr(resource, name)
    _, hard = resource.getrlimit(number)
    most = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(number, (most, most))


def limit_tasks(tasks: int, *, shared: bool) -> None:
    """Limit this user's processes and threads to `tasks`, if shared beyond those that are there.

    In a container with the machine's user ids there is no such limit: the kernel counts what all
    containers of the machine run under this id, of which only this container's is seen.
    """
    if _is_first("pid") or not _is_first("user"):
        limit("RLIMIT_NPROC", tasks + (own_tasks() if shared else 0))


def _is_first(kind: str) -> bool:
    """Tell whether this process is in the namespace in which the machine started."""
    return os.stat(f"/proc/self/ns/{kind}").st_ino == _FIRST[kind]  # noqa: PTH116


def landlock_abi() -> int:
    """Return the kernel's Landlock version; 0 if it has none."""
    return max(0, int(_libc.syscall(_LANDLOCK_CREATE_RULESET, None, 0, _LANDLOCK_VERSION)))


def own_tasks() -> int:
    """Count the processes and threads of this user, this process apart."""
    user, count = os.getuid(), 0
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                if entry.stat().st_uid == user:
                    count += os.stat(f"{entry.path}/task").st_nlink - 2  # noqa: PTH116
            except OSError:  # it has ended
                continue
    return count - 1


def become(user: int, *, search: bool) -> None:
    """Take a user and group id of nobody else, without any capability.

    With `search` the process keeps CAP_DAC_READ_SEARCH, if it has it: Landlock says what it reads,
    and the way there may be closed to all but root.
    """
    kept = 0
    if search and _libc.prctl(_PR_CAPBSET_READ, _CAP_DAC_READ_SEARCH, 0, 0, 0) == 1:
        kept = 1 << _CAP_DAC_READ_SEARCH
        # Else access(2) judges without the capability: R finds no folder for temporary files.
        _libc.prctl(_PR_SET_SECUREBITS, _NO_SETUID_FIXUP, 0, 0, 0)
    _drop_bounding_set(but=kept)
    _check(_libc.prctl(_PR_SET_KEEPCAPS, 1 if kept else 0, 0, 0, 0), "keepcaps")
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    _set_capabilities(kept)
    if kept:
        raised = _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_DAC_READ_SEARCH, 0, 0)
        _check(raised, "ambient capability")


def drop_capabilities(*, but: int = 0) -> None:
    """Drop all capabilities but some for good, if there are any (root in a container)."""
    kept = but and _capabilities() & but
    _drop_bounding_set(but=kept)
    _set_capabilities(kept)


def gain_nothing() -> None:
    """Have no program that is started gain rights (set-user-id bits, file capabilities)."""
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def _drop_bounding_set(*, but: int) -> None:
    for capability in range(64):
        if not but >> capability & 1:
            _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)


def _capabilities() -> int:
    """Return the permitted capabilities; those above 31 are left out."""
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    data = ctypes.create_string_buffer(24)
    _check(_libc.capget(header, data), "capget")
    return int(struct.unpack("=6I", data.raw)[1])


def _set_capabilities(kept: int) -> None:
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)  # this process
    _check(_libc.capset(header, struct.pack("=6I", kept, kept, kept, 0, 0, 0)), "capset")


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


def refuse_calls(program: bytes) -> None:
    """Have the kernel refuse system calls by a filter, for good."""
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // _INSTRUCTION, ctypes.addressof(buffer))
    _check(_libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header, 0, 0), "seccomp")


def _check(result: int, what: str) -> None:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


if __name__ == "__main__":
    main()
