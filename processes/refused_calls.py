"""The system calls that a package is refused, and the seccomp filter that refuses them.

Sources: seccomp(2) and linux/seccomp.h, bpf in linux/filter.h; numbers of calls from the kernel's
syscall tables.
"""

import errno
import os
import struct
import sys
from functools import cache

# The numbers of system calls on x86_64 and aarch64; None where there is no such call.
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # AUDIT_ARCH_*
_REFUSED = {
    # Sockets: the network, other processes' sockets, and descriptors in messages, which could keep
    # removed files out of the count. A pair of connected streams remains.
    "socket": (41, 198),
    "sendmsg": (46, 211),
    "sendmmsg": (307, 269),
    # Other processes.
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    # Memory that belongs to no process.
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # Watching what others do with files, and files by number.
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "fanotify_init": (300, 262),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "lookup_dcookie": (212, 18),
    # Namespaces and mounts.
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    # Parts of the kernel that no reduction needs.
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "syslog": (103, 116),
    "acct": (163, 89),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "vhangup": (153, 58),
    "personality": (135, 92),
    "modify_ldt": (154, None),
    "iopl": (172, None),
    "ioperm": (173, None),
}
_OF_GROUPS = {"setsid": (112, 157), "setpgid": (109, 154)}
# Landlock holds no change of a file's mode, owner, times or attributes.
_OF_FILES_OF_THIS_USER = {
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
}
# Calls that are refused by an argument: numbers, argument, mask, value, and how it is judged: with
# "only" the call is refused unless `argument & mask == value`, with "not" it is refused then.
_ALL = 0xFFFFFFFF
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEW* that clone(2) knows
_CLONE_PARENT, _CLONE_THREAD, _CLONE_FILES = 0x8000, 0x10000, 0x400
_MAP_SHARED_ANONYMOUS = 0x21
_BY_ARGUMENT = (
    ((56, 220), 0, _NEW_NAMESPACES, 0, "only"),  # clone
    ((56, 220), 0, _CLONE_PARENT, 0, "only"),
    ((56, 220), 0, _CLONE_THREAD | _CLONE_FILES, _CLONE_THREAD, "not"),  # files nobody would count
    ((53, 199), 1, 0xF, 1, "only"),  # socketpair: SOCK_STREAM, with any flags
    ((302, 261), 0, _ALL, 0, "only"),  # prlimit64: this process
    ((141, 140), 0, _ALL, 0, "only"),  # setpriority: a process,
    ((141, 140), 1, _ALL, 0, "only"),  # this one
    ((251, 30), 0, _ALL, 1, "only"),  # ioprio_set: a process,
    ((251, 30), 1, _ALL, 0, "only"),  # this one
    ((203, 122), 0, _ALL, 0, "only"),  # sched_setaffinity
    ((142, 118), 0, _ALL, 0, "only"),  # sched_setparam
    ((144, 119), 0, _ALL, 0, "only"),  # sched_setscheduler
    ((314, 274), 0, _ALL, 0, "only"),  # sched_setattr
    ((72, 25), 1, _ALL, 1024, "not"),  # fcntl: F_SETLEASE,
    ((72, 25), 1, _ALL, 1026, "not"),  # F_NOTIFY,
    ((72, 25), 1, _ALL, 1031, "not"),  # F_SETPIPE_SZ
    ((157, 167), 0, _ALL, 4, "not"),  # prctl: PR_SET_DUMPABLE, which hides from the count
    # mmap of shared memory without a file: pages stay that no process maps any more.
    ((9, 222), 3, _MAP_SHARED_ANONYMOUS, _MAP_SHARED_ANONYMOUS, "not"),
)
# With `proxy`: sockets of TCP alone, which take no connections.
_TCP = (
    ((41, 198), 0, _ALL, 2, "only"),  # socket: AF_INET,
    ((41, 198), 1, 0xF, 1, "only"),  # SOCK_STREAM,
    ((41, 198), 2, _ALL ^ 6, 0, "only"),  # IPPROTO_TCP or 0
)
_OF_SERVERS = {"bind": (49, 200), "listen": (50, 201)}
_SENDTO = (44, 206)  # an address, argument 4, makes it refused
_CLONE3 = 435  # its flags lie in memory; without it the C library takes clone
_LAST_KNOWN = 450  # newer calls answer ENOSYS, as on an older kernel
_X32 = 0x40000000

_Instruction = tuple[int, int, int, int]
_LOAD, _EQUAL, _ABOVE, _AND, _ANSWER = 0x20, 0x15, 0x25, 0x54, 0x06
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_ALLOWED, _KILLED, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000


def seccomp_known() -> bool:
    """Tell whether this module knows this machine's system call numbers."""
    return os.uname().machine in _ARCHITECTURES and sys.platform == "linux"


@cache
def filter_of(*, shared: bool, one_group: bool, tcp: bool) -> bytes:
    """Make the seccomp filter of a program: EPERM for refused calls, ENOSYS for new ones.

    Args:
        shared: Others have the same user id, so calls that would change their files are refused.
        one_group: No process leaves the program's group.
        tcp: The program may connect over TCP.
    """
    program = _program(shared=shared, one_group=one_group, tcp=tcp)
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def _program(*, shared: bool, one_group: bool, tcp: bool) -> list[_Instruction]:
    """Make the filter; each rule ends with an answer, or falls through to the next."""
    program: list[_Instruction] = []
    add = program.append
    column, arch = _ARCHITECTURES[os.uname().machine]
    refused = (_ANSWER, 0, 0, _ERROR | errno.EPERM)
    absent = (_ANSWER, 0, 0, _ERROR | errno.ENOSYS)
    add((_LOAD, 0, 0, _ARCH))
    add((_EQUAL, 1, 0, arch))
    add((_ANSWER, 0, 0, _KILLED))
    add((_LOAD, 0, 0, _NUMBER))
    add((_ABOVE, 0, 1, _X32 - 1))
    add(refused)
    add((_ABOVE, 0, 1, _LAST_KNOWN))
    add(absent)
    add((_EQUAL, 0, 1, _CLONE3))
    add(absent)
    refusals = [numbers for name, numbers in _REFUSED.items() if not (tcp and name == "socket")]
    refusals += _OF_SERVERS.values() if tcp else ()
    refusals += _OF_FILES_OF_THIS_USER.values() if shared else ()
    refusals += _OF_GROUPS.values() if one_group else ()
    for number in (numbers[column] for numbers in refusals):
        if number is not None:
            add((_EQUAL, 0, 1, number))
            add(refused)
    for judged, argument, mask, value, how in (*_BY_ARGUMENT, *(_TCP if tcp else ())):
        add((_EQUAL, 0, 5, judged[column]))
        add((_LOAD, 0, 0, _ARGUMENTS + 8 * argument))  # the lower half: both are little-endian
        add((_AND, 0, 0, mask))
        add((_EQUAL, 1, 0, value) if how == "only" else (_EQUAL, 0, 1, value))
        add(refused)
        add((_LOAD, 0, 0, _NUMBER))
    add((_EQUAL, 0, 5, _SENDTO[column]))
    add((_LOAD, 0, 0, _ARGUMENTS + 8 * 4))
    add((_EQUAL, 0, 2, 0))
    add((_LOAD, 0, 0, _ARGUMENTS + 8 * 4 + 4))
    add((_EQUAL, 1, 0, 0))
    add(refused)
    add((_ANSWER, 0, 0, _ALLOWED))
    return program
