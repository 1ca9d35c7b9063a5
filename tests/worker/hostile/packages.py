"""Hostile packages: programs that reach beyond their limits, and how each has to end."""

from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent

USER_CODE = "user code failed"
MEMORY = "out of memory"
TIME = "user code timed out"


@dataclass(frozen=True, kw_only=True)
class Hostile:
    """One package. Without a `category` all that it tries must be refused, and it must end well.

    `message` is part of the failure's message; `bounds` change the usual ones. With `outputs` they
    are taken after the run. `needs` is a reason not to try it: see `test_hostile.py`. What
    `may_end` well is ended by a limit of the kernel if no look comes first.
    """

    name: str
    program: str
    category: str = ""
    message: str = ""
    bounds: dict[str, float] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    compiled: bool = False
    needs: str = ""
    may_end: bool = False


# Puts down what was not refused; `call` makes system calls by their numbers on x86_64.
TRY = """
import ctypes, fcntl, json, os, pwd, signal, socket, struct, sys, resource
given = json.load(open(sys.argv[1] + "/about.json"))
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
done = []
def call(name, number, *arguments):
    arguments = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    if libc.syscall(ctypes.c_long(number), *arguments) >= 0:
        done.append(name)
def attempt(name, action):
    try:
        action()
    except (OSError, ValueError, ModuleNotFoundError, AttributeError, ProcessLookupError):
        pass
    else:
        done.append(name)
def finish():
    open(sys.argv[2] + "/out.txt", "w").write("not refused: " + ", ".join(done))
pid = given["process"]
AT_FDCWD = -100
"""


def tries(name: str, program: str, **more: object) -> Hostile:
    return Hostile(name=name, program=f"{TRY}{program}\nfinish()\n", **more)  # type: ignore[arg-type]


RASTER = """
import json, sys, numpy as np, rasterio
from rasterio.transform import Affine
given = json.load(open(sys.argv[1] + "/about.json"))
out = sys.argv[2] + "/out.tif"
profile = dict(driver="GTiff", dtype="float32", count=1, width=6, height=4, crs="EPSG:4326",
               transform=Affine(0.5, 0, 10, 0, -0.5, 50))
def write(pixels=None, **changes):
    with rasterio.open(out, "w", **{**profile, **changes}) as dataset:
        if pixels is not None:
            dataset.write(pixels)
    return rasterio.open(out, "r+")
ones = np.ones((1, 4, 6), "float32")
"""


def raster(name: str, program: str, message: str = "", **more: object) -> Hostile:
    return Hostile(
        name=name,
        program=f"{RASTER}{program}\n",
        category=USER_CODE if message else "",
        message=message,
        outputs=("out.tif",),
        **more,  # type: ignore[arg-type]
    )


NETWORK = (
    tries(
        "connects over TCP",
        """
attempt("TCP", lambda: socket.create_connection(("127.0.0.1", given["port"]), timeout=2))
""",
    ),
    tries(
        "asks a name server",
        """
attempt("DNS", lambda: socket.getaddrinfo("example.org", 80))
""",
    ),
    tries(
        "opens sockets of all families",
        """
for family in (1, 2, 10, 16, 17, 31, 38, 40, 44):
    for kind in (1, 2, 3):
        attempt(f"family {family} type {kind}", lambda: socket.socket(family, kind, 0))
""",
    ),
    tries(
        "makes pairs of datagram sockets",
        """
attempt("datagrams", lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
attempt("packets", lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
""",
    ),
    tries(
        "sends to the path of another's socket",
        """
one, two = socket.socketpair()
for end in (one, two):
    attempt("sendto", lambda: end.sendto(b"x", given["socket"]))
    attempt("connect", lambda: end.connect(given["socket"]))
    attempt("sendmsg", lambda: end.sendmsg([b"x"], [], 0, given["socket"]))
one.sendall(b"still works")
assert two.recv(20) == b"still works"
""",
    ),
    tries(
        "hides open files in messages",
        """
one, two = socket.socketpair()
attempt("descriptor", lambda: socket.send_fds(one, [b"x"], [0]))
""",
    ),
    tries(
        "goes through io_uring",
        """
call("setup", 425, 8, ctypes.create_string_buffer(200))
call("enter", 426, 0, 0, 0, 0, 0, 0)
call("register", 427, 0, 0, 0, 0)
""",
    ),
)

PROCESSES = (
    tries(
        "changes the limits of another",
        """
for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE):
    attempt("prlimit", lambda: resource.prlimit(pid, kind, (1, 1)))
    call("prlimit64", 302, pid, int(kind), struct.pack("QQ", 1, 1), 0)
    call("of its parent", 302, os.getppid(), int(kind), struct.pack("QQ", 1, 1), 0)
""",
    ),
    tries(
        "ends another",
        """
for number in (0, signal.SIGTERM, signal.SIGKILL):
    attempt("kill", lambda: os.kill(pid, number))
    attempt("pidfd", lambda: signal.pidfd_send_signal(os.pidfd_open(pid), number))
""",
    ),
    tries(
        "reads and writes another's memory",
        """
call("attach", 101, 16, pid, 0, 0)
call("seize", 101, 0x4206, pid, 0, 0)
buffer = ctypes.create_string_buffer(8)
vector = struct.pack("QQ", ctypes.addressof(buffer), 8)
call("read", 310, pid, vector, 1, vector, 1, 0)
call("write", 311, pid, vector, 1, vector, 1, 0)
attempt("mem", lambda: open(f"/proc/{pid}/mem", "r+b"))
""",
    ),
    tries(
        "reads another's environment",
        """
def environment(number):
    if b"SECRET" in open(f"/proc/{number}/environ", "rb").read():
        return
    raise OSError
for number in (1, pid, os.getppid()):
    attempt(f"environment of {number}", lambda: environment(number))
""",
    ),
    tries(
        "reads the worker that runs it",
        """
for number in {given["worker"], os.getppid()}:
    if number == 1:  # bubblewrap itself, which knows nothing
        continue
    for name in ("mem", "maps", "environ", "auxv", "cmdline", "stack", "syscall"):
        attempt(f"{name} of {number}", lambda: open(f"/proc/{number}/{name}", "rb").read(1))
    for name in ("fd", "root/", "cwd/", "map_files", "task"):
        attempt(f"{name} of {number}", lambda: os.listdir(f"/proc/{number}/{name}"))
""",
    ),
    tries(
        "takes another's files",
        """
attempt("pidfd_getfd", lambda: call("getfd", 438, os.pidfd_open(pid), 0, 0))
call("kcmp", 312, os.getpid(), pid, 0, 0, 0)
attempt("fd", lambda: os.listdir(f"/proc/{pid}/fd"))
attempt("cwd", lambda: os.listdir(f"/proc/{pid}/cwd/"))
done[:] = [one for one in done if one != "pidfd_getfd"]
""",
    ),
    tries(
        "slows others down",
        """
attempt("renice", lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))
attempt("renice all", lambda: os.setpriority(os.PRIO_USER, 0, 19))
attempt("renice group", lambda: os.setpriority(os.PRIO_PGRP, 1, 19))
attempt("affinity", lambda: os.sched_setaffinity(pid, {0}))
attempt("scheduler", lambda: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)))
call("I/O priority", 251, 1, pid, 3 << 13)
""",
    ),
    tries(
        "takes the processor for itself",
        """
assert os.getpriority(os.PRIO_PROCESS, 0) == 19
attempt("nice", lambda: os.setpriority(os.PRIO_PROCESS, 0, 0))
attempt("real time", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))
attempt("deadline", lambda: call("deadline", 314, 0, ctypes.create_string_buffer(
    struct.pack("IIQiIQQQ", 48, 6, 0, 0, 0, 10**6, 10**7, 10**7)), 0))
done[:] = [one for one in done if one != "deadline"] if "deadline" in done else done
""",
    ),
    tries(
        "hides from the count",
        """
call("not dumpable", 157, 4, 0, 0, 0, 0)
call("a thread with files of its own", 56, 0x10000 | 0x800 | 0x100, 0, 0, 0, 0)
call("a brother", 56, 0x8000 | 17, 0, 0, 0, 0)
""",
    ),
    Hostile(
        name="becomes a program that cannot be read",
        program="""
import os, shutil, sys
copy = os.environ["TMPDIR"] + "/program"
shutil.copyfile("/usr/bin/sleep", os.open(copy, os.O_CREAT | os.O_WRONLY, 0o111))
os.execv(copy, ["sleep", "3"])
""",
        category=USER_CODE,
        message="hides what it has open",
        needs="another user than root",
    ),
    Hostile(
        name="outlives its program",
        program="""
import contextlib, os, sys, time
with open(sys.argv[2] + "/out.txt", "w") as out:
    out.write("not refused: ")
if os.fork() == 0:
    with contextlib.suppress(OSError):
        os.setsid()
    for number in range(3):
        if os.fork():
            os._exit(0)
    time.sleep(2)
    open(sys.argv[2] + "/out.txt", "a").write("from the grave")
""",
    ),
    Hostile(
        name="has too many processes",
        program="""
import os, time
for number in range(30):
    if os.fork() == 0:
        time.sleep(20)
        os._exit(0)
time.sleep(20)
""",
        category=USER_CODE,
        message="its limit is 16: raise `processes`",
    ),
    tries(
        "starts very many threads",
        """
import threading, time
threading.stack_size(2**16)
for number in range(300):
    try:
        threading.Thread(target=time.sleep, args=(5,), daemon=True).start()
    except RuntimeError:
        break
else:
    done.append("300 threads")
finish()
os._exit(0)
""",
        needs="own user",
    ),
    Hostile(
        name="is a fast fork bomb",
        program="""
#include <unistd.h>
int main(void) { for (;;) fork(); }
""",
        compiled=True,
        category=USER_CODE,
        message="its limit is 16: raise `processes`",
        needs="own user",
    ),
    Hostile(
        name="runs away by forking",
        program="""
#include <unistd.h>
#include <time.h>
int main(void) {
    for (int chain = 0; chain < 60; chain++)
        if (fork() == 0) {
            struct timespec pause = {0, 200000};
            for (;;) { if (fork()) _exit(0); nanosleep(&pause, 0); }
        }
    sleep(10);
}
""",
        compiled=True,
        category=USER_CODE,
        may_end=True,
        message="its limit is 16: raise `processes`",
    ),
    Hostile(
        name="sleeps for ever",
        program="import time; time.sleep(600)",
        category=TIME,
        message="time limit of 0.5 s",
        bounds={"seconds": 0.5},
    ),
    Hostile(
        name="ignores all signals that it can",
        program="""
import signal, time
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
    try:
        signal.signal(number, signal.SIG_IGN)
    except OSError:
        pass
while True:
    time.sleep(60)
""",
        category=TIME,
        message="time limit of 1 s",
        bounds={"seconds": 1.0},
    ),
    Hostile(
        name="prints without end",
        program="""
import os
line = b"x" * 65536
while True:
    os.write(1, line)
""",
        category=TIME,
        message="time limit of 1 s",
        bounds={"seconds": 1.0},
    ),
    Hostile(
        name="spins on all processors",
        program="""
import os
for number in range(12):
    if os.fork() == 0:
        while True:
            pass
while True:
    pass
""",
        category=TIME,
        message="time limit of 0.5 s",
        bounds={"seconds": 0.5},
    ),
)

FILES = (
    tries(
        "reads a secret",
        """
attempt("open", lambda: open(given["secret"]))
attempt("list", lambda: os.listdir(given["data"]))
attempt("passwords", lambda: open("/etc/shadow"))
attempt("root's folder", lambda: os.listdir(pwd.getpwuid(0).pw_dir + "/.ssh"))
assert not [name for name in os.environ if "SWATHMILL" in name or "AZURE" in name]
""",
    ),
    tries(
        "reads another attempt's inputs and another owner's package",
        """
for folder in given["others"]:
    attempt(f"list {folder}", lambda: os.listdir(folder))
    attempt(f"read {folder}", lambda: open(folder + "/theirs.py").read())
    attempt(f"write {folder}", lambda: open(folder + "/theirs.py", "a"))
    attempt(f"make {folder}", lambda: os.mkdir(folder + "/mine"))
    attempt(f"above {folder}", lambda: os.listdir(os.path.dirname(folder)))
for up in range(1, 12):
    path = "../" * up + "unpacked/other/theirs.py"
    attempt(path, lambda: open(path))
""",
    ),
    tries(
        "changes modes, owners and times of a secret",
        """
for path in (given["secret"], given["data"]):
    attempt("chmod", lambda: os.chmod(path, 0o777))
    attempt("chown", lambda: os.chown(path, 65534, 65534))
    attempt("utime", lambda: os.utime(path, (0, 0)))
    attempt("xattr", lambda: os.setxattr(path, "user.x", b"x"))
    call("fchmodat2", 452, AT_FDCWD, path.encode(), 0o777, 0)
""",
    ),
    tries(
        "changes its inputs, its package and the system",
        """
for folder in (sys.argv[1], ".", "/usr", "/etc", sys.prefix, given["data"]):
    attempt(f"write {folder}", lambda: open(folder + "/harm", "w"))
    attempt(f"remove {folder}", lambda: os.rmdir(folder))
attempt("truncate", lambda: os.truncate(sys.argv[1] + "/about.json", 0))
attempt("rename", lambda: os.rename(sys.argv[1] + "/about.json", sys.argv[2] + "/x"))
""",
    ),
    tries(
        "makes names for others' files",
        """
attempt("link", lambda: os.link(given["secret"], sys.argv[2] + "/a"))
attempt("link of an input", lambda: os.link(sys.argv[1] + "/about.json", sys.argv[2] + "/b"))
call("handle", 303, AT_FDCWD, b"/", ctypes.create_string_buffer(200), ctypes.c_int(0), 0)
call("by handle", 304, AT_FDCWD, ctypes.create_string_buffer(200), 0)
os.symlink(given["secret"], sys.argv[2] + "/c")
attempt("open by link", lambda: open(sys.argv[2] + "/c"))
""",
    ),
    tries(
        "watches folders",
        """
call("inotify", 253)
call("inotify1", 294, 0)
call("fanotify", 300, 0, 0)
place = os.open("/usr", os.O_RDONLY)
attempt("dnotify", lambda: fcntl.fcntl(place, fcntl.F_NOTIFY, fcntl.DN_ACCESS))
file = os.open(sys.argv[1] + "/about.json", os.O_RDONLY)
attempt("lease", lambda: fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK))
""",
    ),
    tries(
        "makes devices",
        """
for kind in (0o020666, 0o060666):
    attempt("device", lambda: os.mknod(sys.argv[2] + "/device", kind, os.makedev(1, 11)))
attempt("kmsg", lambda: open("/dev/kmsg"))
attempt("kmsg in proc", lambda: open("/proc/kmsg"))
call("syslog", 103, 3, ctypes.create_string_buffer(100), 100)
attempt("disk", lambda: open("/dev/vda"))
""",
    ),
    Hostile(
        name="links to a secret as its output",
        program="""
import json, os, sys
os.symlink(json.load(open(sys.argv[1] + "/about.json"))["secret"], sys.argv[2] + "/table.csv")
""",
        category=USER_CODE,
        message="table.csv and did not write it as a file",
        outputs=("table.csv",),
    ),
    Hostile(
        name="leaves a pipe as its output",
        program="import os, sys; os.mkfifo(sys.argv[2] + '/table.csv')",
        category=USER_CODE,
        message="table.csv and did not write it as a file",
        outputs=("table.csv",),
    ),
)

KERNEL = (
    tries(
        "makes namespaces",
        """
for flag in (0x10000000, 0x00020000, 0x40000000, 0x20000000, 0x08000000, 0x04000000, 0x02000000):
    call(f"unshare {flag:x}", 272, flag)
    call(f"clone {flag:x}", 56, flag | 17, 0, 0, 0, 0)
call("clone3", 435, struct.pack("8Q", 0x10000000, 0, 0, 0, 17, 0, 0, 0), 64)
attempt("setns", lambda: call("setns", 308, os.open(f"/proc/{pid}/ns/net", os.O_RDONLY), 0))
""",
    ),
    tries(
        "mounts",
        """
call("mount", 165, b"none", (sys.argv[2]).encode(), b"tmpfs", 0, 0)
call("chroot", 161, sys.argv[2].encode())
call("fsopen", 430, b"tmpfs", 0)
call("open_tree", 428, AT_FDCWD, b"/", 1)
call("umount", 166, b"/proc", 2)
""",
    ),
    tries(
        "uses dangerous parts of the kernel",
        """
call("userfaultfd", 323, 0)
call("userfaultfd for users", 323, 1)
call("bpf", 321, 0, ctypes.create_string_buffer(100), 100)
call("perf", 298, ctypes.create_string_buffer(struct.pack("II", 1, 112) + bytes(104)), 0, -1, -1, 0)
call("module", 313, 0, b"", 0)
call("reboot", 169, 0xFEE1DEAD, 672274793, 0, 0)
call("swapon", 167, b"/dev/vda", 0)
call("acct", 163, 0)
call("settime", 227, 0, struct.pack("QQ", 0, 0))
call("hostname", 170, b"x", 1)
call("a call of a newer kernel", 460, 0, 0, 0)
attempt("32 bits", lambda: call("x32", 0x40000000 + 41, 2, 1, 0))
done[:] = [one for one in done if one != "32 bits"]
""",
    ),
    tries(
        "fills keyrings",
        """
for number in range(100):
    call("key", 248, b"user", b"swathmill%d" % number, b"x" * 100, 100, -4)
call("keyctl", 250, 0, -3, 1)
call("request", 249, b"user", b"swathmill", 0, -4)
""",
    ),
    tries(
        "runs programs that take another user id",
        """
import shutil, subprocess
assert libc.prctl(39, 0, 0, 0, 0) == 1, "new privileges are possible"
copy = os.environ["TMPDIR"] + "/id"
shutil.copyfile("/usr/bin/id", copy)
attempt("owner", lambda: os.chown(copy, 0, 0) if os.getuid() else None)
try:
    os.chmod(copy, 0o6755)
except OSError:
    shutil.copyfile("/usr/bin/id", os.open(copy + "2", os.O_CREAT | os.O_WRONLY, 0o6755))
    copy += "2"
said = subprocess.run([copy, "-u"], capture_output=True, text=True).stdout.strip()
done[:] = [one for one in done if one != "owner" or os.getuid()]
if said != str(os.getuid()):
    done.append(f"runs as {said}")
""",
    ),
    tries(
        "gets privileges",
        """
attempt("setuid", lambda: os.setresuid(1234, 1234, 1234) if os.getuid() == 0 else os.setuid(0))
attempt("setgid", lambda: os.setgid(1))
capabilities = ctypes.create_string_buffer(24)
libc.capget(struct.pack("=Ii", 0x20080522, 0), capabilities)
search = struct.pack("=6I", 4, 4, 4, 0, 0, 0)
assert capabilities.raw == (search if given["search"] else bytes(24))
""",
    ),
)

MEMORY_BOMBS = (
    Hostile(
        name="has much memory in many processes",
        program="""
import os, time
for n in range(4):
    if os.fork() == 0:
        held = os.urandom(1 << 20) * 60
        time.sleep(20)
time.sleep(20)
""",
        category=MEMORY,
        message="raise `memory_gb`",
        bounds={"memory": 150 * 10**6},
    ),
    Hostile(
        name="has memory in a thread whose first thread has ended",
        program="""
import ctypes, threading, time
def hold():
    time.sleep(0.2)
    held = [bytearray(10**7) for _ in range(20)]
    time.sleep(20)
threading.Thread(target=hold).start()
ctypes.CDLL(None).pthread_exit(None)
""",
        category=MEMORY,
        message="raise `memory_gb`",
        bounds={"memory": 150 * 10**6},
    ),
    tries(
        "has memory in files without a name",
        """
attempt("memfd", lambda: os.memfd_create("x"))
call("secret", 447, 0)
""",
    ),
    tries(
        "has memory in System V segments",
        """
call("shmget", 29, 0, 3 << 30, 0o1600)
call("msgget", 68, 0, 0o1600)
call("semget", 64, 0, 1000, 0o1600)
call("mq_open", 240, b"swathmill", os.O_CREAT | os.O_RDWR, 0o600, 0)
""",
    ),
    tries(
        "shares memory without a file",
        """
import mmap
attempt("mmap", lambda: mmap.mmap(-1, 1 << 20))
""",
    ),
    Hostile(
        name="shares memory by /dev/zero",
        program="""
import mmap, os, time
file = os.open("/dev/zero", os.O_RDWR)
held = mmap.mmap(file, 400 << 20)
os.close(file)
time.sleep(20)
""",
        category=USER_CODE,
        message="",
        bounds={"memory": 150 * 10**6},
    ),
    Hostile(
        name="fills sockets",
        program="""
import socket, time
held = [socket.socketpair() for _ in range(400)]
for pair in held:
    for end in pair:
        end.setblocking(False)
        try:
            while True:
                end.send(bytes(4096))
        except BlockingIOError:
            pass
time.sleep(20)
""",
        category=MEMORY,
        message="raise `memory_gb`",
        bounds={"memory": 150 * 10**6},
    ),
    Hostile(
        name="fills tables of pages",
        program="""
import ctypes, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + 3 * [ctypes.c_int] + [ctypes.c_long]
size = 128 << 30
at = libc.mmap(None, size, 1, 0x4022, -1, 0)
libc.prctl(41, 1, 0, 0, 0)  # no huge pages
for offset in range(0, size, 1 << 21):
    ctypes.c_byte.from_address(at + offset).value
time.sleep(20)
""",
        category=MEMORY,
        message="raise `memory_gb`",
        bounds={"memory": 150 * 10**6},
    ),
    Hostile(
        name="fills the file system in memory",
        program="""
import os, sys, time
try:
    for number in range(100000):
        open(f"/dev/shm/{number}", "w").close()
except OSError:
    sys.exit("nothing to fill")
time.sleep(20)
""",
        category=USER_CODE,
        message="",
    ),
    tries(
        "writes into folders that are memory",
        """
attempt("dev", lambda: open("/dev/x", "w"))
attempt("root", lambda: open("/x", "w"))
attempt("run", lambda: open("/run/x", "w"))
""",
    ),
)

DISK = (
    Hostile(
        name="writes many files",
        program="""
import sys, time
for n in range(20):
    open(f"{sys.argv[2]}/{n}", "wb").write(bytes(10**6))
time.sleep(20)
""",
        category=USER_CODE,
        message="raise `output_gb`",
        bounds={"output": 5 * 10**6},
    ),
    Hostile(
        name="writes and ends before anybody looks",
        program="""
import os, sys
for n in range(20):
    os.truncate(os.open(f"{sys.argv[2]}/{n}", os.O_CREAT | os.O_RDWR), 10**6)
os._exit(0)
""",
        category=USER_CODE,
        message="raise `output_gb`",
        bounds={"output": 5 * 10**6},
    ),
    Hostile(
        name="nests folders",
        program="""
import os, sys, time
os.chdir(sys.argv[2])
for n in range(80):
    os.mkdir("d")
    os.chdir("d")
open("x", "wb").write(bytes(10**6))
time.sleep(20)
""",
        category=USER_CODE,
        message="deeper than 64 levels",
        bounds={"output": 5 * 10**6},
    ),
    Hostile(
        name="removes its files and keeps them open",
        program="""
import os, sys, time
held = []
for n in range(20):
    held.append(open(f"{os.environ['TMPDIR']}/{n}", "wb"))
    os.unlink(held[-1].name)
    held[-1].write(bytes(10**6))
    held[-1].flush()
time.sleep(20)
""",
        category=USER_CODE,
        message="raise `output_gb`",
        bounds={"output": 5 * 10**6},
    ),
    Hostile(
        name="removes a file and keeps it mapped",
        program="""
import ctypes, os, sys, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
file = os.open(sys.argv[2] + "/x", os.O_CREAT | os.O_RDWR)
os.write(file, bytes(10**6))
libc.mmap(None, ctypes.c_size_t(4096), 3, 1, file, ctypes.c_long(0))
os.close(file)
os.unlink(sys.argv[2] + "/x")
time.sleep(20)
""",
        category=USER_CODE,
        message="removed and closed",
        bounds={"output": 5 * 10**6},
    ),
    Hostile(
        name="writes empty files",
        program="""
import os, sys, time
for n in range(400000):
    os.close(os.open(f"{sys.argv[2]}/{n}", os.O_CREAT | os.O_RDWR))
time.sleep(20)
""",
        category=USER_CODE,
        message="more than 20000 files",
    ),
    Hostile(
        name="takes blocks beyond a file's end",
        program="""
import ctypes, os, sys, time
file = os.open(sys.argv[2] + "/x", os.O_CREAT | os.O_RDWR)
libc = ctypes.CDLL(None)
libc.fallocate(file, 1, ctypes.c_long(0), ctypes.c_long(4 * 10**6))
file = os.open(sys.argv[2] + "/y", os.O_CREAT | os.O_RDWR)
libc.fallocate(file, 1, ctypes.c_long(0), ctypes.c_long(4 * 10**6))
time.sleep(20)
""",
        category=USER_CODE,
        message="raise `output_gb`",
        bounds={"output": 5 * 10**6},
    ),
    Hostile(
        name="writes one large file",
        program="""
import sys
open(sys.argv[2] + "/x", "wb").write(bytes(10**7))
""",
        category=USER_CODE,
        message="",
        bounds={"output": 5 * 10**6},
    ),
)

OUTPUTS = (
    raster(
        "is a VRT over a local file",
        """
open(out, "w").write('''<VRTDataset rasterXSize="6" rasterYSize="4"><SRS>EPSG:4326</SRS>
<GeoTransform>10,0.5,0,50,0,-0.5</GeoTransform><VRTRasterBand dataType="Byte" band="1">
<NoDataValue>0</NoDataValue><SimpleSource><SourceFilename relativeToVRT="0">%s</SourceFilename>
<SourceBand>1</SourceBand></SimpleSource></VRTRasterBand></VRTDataset>''' % given["secret"])
""",
        "is not a raster that opens (a GeoTIFF alone is read)",
    ),
    raster(
        "is a VRT of raw bytes",
        """
open(out, "w").write('''<VRTDataset rasterXSize="6" rasterYSize="1">
<VRTRasterBand dataType="Byte" band="1" subClass="VRTRawRasterBand">
<SourceFilename relativetoVRT="0">%s</SourceFilename></VRTRasterBand></VRTDataset>'''
% given["secret"])
""",
        "is not a raster that opens",
    ),
    raster(
        "is a VRT over the network",
        """
open(out, "w").write('''<VRTDataset rasterXSize="6" rasterYSize="4">
<VRTRasterBand dataType="Byte" band="1"><SimpleSource>
<SourceFilename relativeToVRT="0">/vsicurl/http://127.0.0.1:%d/x.tif</SourceFilename>
<SourceBand>1</SourceBand></SimpleSource></VRTRasterBand></VRTDataset>''' % given["port"])
""",
        "is not a raster that opens",
    ),
    raster(
        "is a description of a WMS",
        """
open(out, "w").write('''<GDAL_WMS><Service name="TMS">
<ServerUrl>http://127.0.0.1:%d/${z}/${x}/${y}.png</ServerUrl></Service><DataWindow>
<UpperLeftX>-180</UpperLeftX><UpperLeftY>90</UpperLeftY><LowerRightX>180</LowerRightX>
<LowerRightY>-90</LowerRightY><SizeX>6</SizeX><SizeY>4</SizeY></DataWindow>
<BandsCount>1</BandsCount></GDAL_WMS>''' % given["port"])
""",
        "is not a raster that opens",
    ),
    raster(
        "is a description of a WMTS",
        """
open(out, "w").write('''<GDAL_WMTS><GetCapabilitiesUrl>http://127.0.0.1:%d/x?SERVICE=WMTS
</GetCapabilitiesUrl></GDAL_WMTS>''' % given["port"])
""",
        "is not a raster that opens",
    ),
    raster(
        "is a description for other drivers",
        """
open(out, "w").write("DAAS:http://127.0.0.1:%d/" % given["port"])
""",
        "is not a raster that opens",
    ),
    raster(
        "is another format",
        """
with rasterio.open(out, "w", **{**profile, "driver": "PNG", "dtype": "uint8"}) as dataset:
    dataset.write(ones.astype("uint8"))
""",
        "is not a raster that opens",
    ),
    raster(
        "is a link to a raster",
        """
import os
write(ones).close()
os.rename(out, sys.argv[2] + "/other.tif")
os.symlink("other.tif", out)
""",
        "did not write it as a file",
    ),
    raster("is a folder", "import os; os.mkdir(out)", "did not write it as a file"),
    raster(
        "is a huge raster in a small file",
        """
write(width=200_000, height=200_000, dtype="uint8", tiled=True, blockxsize=4096,
      blockysize=4096, SPARSE_OK=True, compress="deflate", BIGTIFF="YES", nodata=0).close()
""",
        "has 200000 x 200000 pixels",
    ),
    raster(
        "has very many bands",
        "write(count=20_000, SPARSE_OK=True, interleave='pixel').close()",
        "has 20000 bands; 1000 are the most",
    ),
    raster(
        "has the scale NaN",
        """
with write(ones) as dataset:
    dataset.scales = [float("nan")]
""",
        "has the scale nan",
    ),
    raster(
        "has the scale 0",
        """
with write(ones) as dataset:
    dataset.scales = [0.0]
""",
        "has the scale 0.0",
    ),
    raster("has no CRS", "write(ones, crs=None).close()", "has no CRS"),
    raster(
        "has another CRS",
        "write(ones, crs='EPSG:32631').close()",
        "has the CRS EPSG:32631; the inputs have EPSG:4326: write it on their grid",
    ),
    raster("has no place", "write(ones, transform=Affine.identity()).close()", "on their grid"),
    raster(
        "has pixels of complex numbers",
        "write(ones.astype('complex64'), dtype='complex64').close()",
        "has pixels of the type complex64",
    ),
    raster(
        "has a nodata value of another type",
        """
write(ones.astype("int64"), dtype="int64", nodata=1).close()
data = open(out, "rb").read().replace(b"1\\0", b"1\\0")
with rasterio.open(out, "w", **{**profile, "dtype": "uint8"}) as dataset:
    dataset.write(ones.astype("uint8"))
""",
        "no nodata value",
    ),
    raster(
        "is cut off",
        """
import os
write(np.random.default_rng(1).random((1, 4, 6)).astype("float32")).close()
os.truncate(out, os.path.getsize(out) - 40)
""",
        "out.tif",
    ),
    raster(
        "has control characters in its descriptions",
        """
with write(ones) as dataset:
    dataset.set_band_description(1, "red\\x1b[31m\\u202ename")
    dataset.units = ["m\\x07"]
""",
    ),
    raster(
        "has files beside it that change it",
        """
write(ones).close()
open(out + ".aux.xml", "w").write('''<PAMDataset><PAMRasterBand band="1"><Scale>7</Scale>
</PAMRasterBand></PAMDataset>''')
open(out + ".ovr", "w").write("no overview")
open(sys.argv[2] + "/out.tfw", "w").write("1\\n0\\n0\\n1\\n0\\n0\\n")
""",
    ),
    raster(
        "links to a secret as its flat values",
        "import os; os.symlink(given['secret'], sys.argv[2] + '/out.bin')",
        "out.bin cannot be read",
    ),
    raster(
        "has very many bands in a flat file without content",
        "import os; open(sys.argv[2] + '/out.bin', 'wb').truncate(96 * 100_000)",
        "write whole bands, at most 1,000",
    ),
    Hostile(
        name="makes files that hurt who reads them",
        program="""
import sys
out = sys.argv[2]
open(out + "/deep.json", "w").write("[" * 10**6)
open(out + "/huge.json", "w").write('{"n": 1' + "0" * 10**6 + "}")
# The magic numbers of NetCDF with sizes that lie.
open(out + "/bomb.nc", "wb").write(b"CDF\\x05" + b"\\xff" * 4096)
open(out + "/bomb4.nc", "wb").write(b"\\x89HDF\\r\\n\\x1a\\n" + b"\\xff" * 4096)
open(out + "/page.html", "w").write("<script>alert(1)</script>")
""",
        outputs=("deep.json", "huge.json", "bomb.nc", "bomb4.nc", "page.html"),
    ),
    Hostile(
        name="prints orders to terminals",
        program=r"raise SystemExit('\x1b]0;title\x07 \x1b[31mred \u202e text')",
        category=USER_CODE,
        message=r"ended with exit code 1: \x1b]0;title\x07 \x1b[31mred \u202e text",
    ),
)

ALL = (*NETWORK, *PROCESSES, *FILES, *KERNEL, *MEMORY_BOMBS, *DISK, *OUTPUTS)
