"""What the checks of tests/posix share: verdicts, what was seen, system calls that Python lacks.

A check is a function `dNN(case)`. It notes what it sees with case.see(), in words that do not
depend on time, machine or inode numbers, so that the notes of two file systems can be compared line by
line, and fails with case.check() where only one answer is right.
"""
import ctypes
import errno
import os
import shutil
import signal
import struct
import sys
import traceback

LONG = os.environ.get("VARVE_LONG") == "1"
LIBC = ctypes.CDLL("libc.so.6", use_errno=True)
AT_FDCWD = -100
HERE = os.path.dirname(os.path.abspath(__file__))


def long(short, count):
    """The count of a long run, or the short one."""
    return count if LONG else short


def name_of(number):
    if number == errno.EDEADLK:
        return "EDEADLK"  # Python prefers another name of it
    return errno.errorcode.get(number, f"E{number}") if number else "ok"


def attempt(function, *args, **options):
    """"ok", or the name of the error that the call gave."""
    try:
        function(*args, **options)
        return "ok"
    except OSError as error:
        return name_of(error.errno)


def libc(name, *args):
    """Calls a function of libc; gives its result or raises OSError."""
    ctypes.set_errno(0)
    result = getattr(LIBC, name)(*args)
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def renameat2(old, new, flags):
    return libc("renameat2", AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), flags)


def fallocate(fd, mode, offset, length):
    return libc("fallocate", fd, mode, ctypes.c_long(offset), ctypes.c_long(length))


def read_file(path):
    with open(path, "rb") as f:
        return f.read()


def write_file(path, data, flags=0, mode=0o644):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | flags, mode)
    try:
        data = data.encode() if isinstance(data, str) else data
        while data:
            data = data[os.write(fd, data):]
    finally:
        os.close(fd)


def sync_dir(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def syncfs(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        libc("syncfs", fd)
    finally:
        os.close(fd)


def used_bytes(path):
    """What the file system at `path` has in use."""
    syncfs(path)
    st = os.statvfs(path)
    return (st.f_blocks - st.f_bfree) * st.f_frsize


def flock_bytes(kind, start, length, pid=0):
    """struct flock on a 64-bit machine."""
    return bytearray(struct.pack("hhqqi4x", kind, os.SEEK_SET, start, length, pid))


class Child:
    """A process of its own that runs a function; its exit status says how that went."""

    def __init__(self, function, *args, uid=None, groups=None, gid=None):
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            status = 99
            try:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                if uid is not None:
                    os.setgroups(groups or [])
                    os.setresgid(gid or uid, gid or uid, gid or uid)
                    os.setresuid(uid, uid, uid)
                status = function(*args) or 0
            except OSError as error:
                status = error.errno
                sys.stderr.write(traceback.format_exc())
            except BaseException:  # pylint: disable=broad-except
                sys.stderr.write(traceback.format_exc())
            finally:
                sys.stderr.flush()
                os._exit(status)

    def wait(self):
        """Its exit status, or minus the signal that ended it."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        return self.wait()


def quiet(function, *args):
    """For a Child that is expected to fail: its errno is its status, nothing is printed."""
    try:
        function(*args)
        return 0
    except OSError as error:
        return error.errno


def as_user(uid, function, *args, groups=None, gid=None):
    """The name of the error that `function` gives to another user, "ok" if none."""
    status = Child(quiet, function, *args, uid=uid, groups=groups, gid=gid).wait()
    return name_of(status) if status >= 0 else signal.Signals(-status).name


def together(count, function, *args):
    """Runs `count` processes at once, numbered from 0; their statuses."""
    children = [Child(function, number, *args) for number in range(count)]
    return [child.wait() for child in children]


class Wrong(Exception):
    """What a check found to be wrong."""


class Case:
    """One check on one site."""

    def __init__(self, name, site, outside):
        self.name = name
        self.site = site
        self.outside = outside  # a directory on another file system
        self.seen = []
        self.remarks = []
        self.dir = os.path.join(site.path, name)

    def path(self, *parts):
        return os.path.join(self.dir, *parts)

    def see(self, what, value):
        """Notes something that has to be the same on every file system that behaves alike."""
        self.seen.append(f"{what}: {value}")

    def remark(self, text):
        """Notes something that may differ; it is printed and not compared."""
        self.remarks.append(text)

    @staticmethod
    def check(condition, text):
        if not condition:
            raise Wrong(text)

    def same(self, have, want, what):
        """Checks, and notes what was right."""
        if have != want:
            raise Wrong(f"{what}: {have!r} instead of {want!r}")
        self.see(what, have)

    def remount(self):
        """Unmounts and mounts again where that is possible."""
        if self.site.can_remount:
            os.chdir("/")
            self.site.remount()


def run_case(function, site, outside):
    """Runs one check; gives (verdict, notes, remarks). The verdict is "pass" or what was wrong."""
    case = Case(function.__name__.upper(), site, os.path.join(outside, function.__name__))
    shutil.rmtree(case.dir, ignore_errors=True)
    os.makedirs(case.dir)
    os.makedirs(case.outside)
    old = os.umask(0o022)
    before = set(os.listdir("/proc/self/fd"))
    try:
        function(case)
        verdict = "pass"
    except Wrong as wrong:
        verdict = f"fail: {wrong}"
    except Exception as error:  # pylint: disable=broad-except
        where = traceback.extract_tb(error.__traceback__)[-1]
        verdict = (f"fail: {type(error).__name__} {error} ({os.path.basename(where.filename)}:"
                   f"{where.lineno})")
        case.remark(traceback.format_exc())
    finally:
        os.umask(old)
        for fd in set(os.listdir("/proc/self/fd")) - before:
            attempt(os.close, int(fd))
        os.chdir("/")
    for path in (case.dir, case.outside):
        shutil.rmtree(path, ignore_errors=True)
    return verdict, case.seen, case.remarks
