#!/usr/bin/env python3
"""What varve-keeper may call once it serves (fuse/keeper/keeper.h): nothing that allocates, and nothing
that reads, writes or opens a file.

usage: lint_keeper.py LIBRARY [SOURCE...]

LIBRARY has all of keeper but its start. Its undefined symbols have to be in ALLOWED, so that a new
call needs a line here. Prints one line per finding and ends with status 1 if there is any.
"""
import re
import subprocess
import sys

ALLOWED = {
    # descriptors and processes
    "close", "dup2", "fcntl", "accept4", "getsockopt", "sendmsg", "recvmsg", "poll",
    "epoll_ctl", "epoll_wait", "waitid", "signal", "execveat", "_exit", "getpid", "syscall",
    # facts about descriptors, and about links in /proc (statx with AT_STATX_DONT_SYNC alone: no file system is asked)
    "fstat", "statx", "readlink",
    # one page of a volume's live map
    "mmap", "munmap",
    # of the workers' log, in the child
    "ftruncate",
    "clock_gettime", "nanosleep",
    # in memory; snprintf only with integers
    "memchr", "memcmp", "memcpy", "memset", "strcmp", "strnlen", "snprintf",
    "__errno_location", "environ",
}
# syscall(): by number, looked for in the sources.
SYSCALLS = {"SYS_clone3", "SYS_close_range", "SYS_pidfd_open", "SYS_pidfd_send_signal"}
COMPILER = re.compile(r"__asan_|__ubsan_|__tsan_|__sanitizer_|__stack_chk_|_GLOBAL_OFFSET_TABLE_")


def plain(symbol):
    """The name that stands in the source: fcntl64 is fcntl, __memcpy_chk is memcpy."""
    symbol = re.sub(r"^__(\w+)_chk$", r"\1", symbol)
    return re.sub(r"64$", "", symbol)


def symbols(library):
    """Names that the library defines, and (object, name) of what it wants."""
    out = subprocess.run(["nm", "-A", library], capture_output=True, text=True, check=True).stdout
    defined, wanted = set(), []
    for line in out.splitlines():
        words = line.split()
        if len(words) < 2 or len(words[-2]) != 1:
            continue
        if words[-2] == "U":
            wanted.append((words[0].rstrip(":"), words[-1]))
        elif words[-2].isupper():
            defined.add(words[-1])
    return defined, wanted


def main():
    library, sources = sys.argv[1], sys.argv[2:]
    defined, wanted = symbols(library)
    found = []
    for where, name in wanted:
        if name in defined or COMPILER.match(name) or plain(name) in ALLOWED or name in ALLOWED:
            continue
        found.append(f"{where}: {name}() is nothing that keeper may call once it serves")
    for path in sources:
        with open(path, encoding="utf-8") as f:
            for call in re.findall(r"\bSYS_\w+", f.read()):
                if call not in SYSCALLS:
                    found.append(f"{path}: {call} is nothing that keeper may call once it serves")
    if not any(name.endswith("epoll_wait") for _, name in wanted):
        found.append(f"{library}: this is not keeper's library")
    print("\n".join(sorted(set(found))))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
