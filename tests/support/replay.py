"""Power cuts, from what recorder.h wrote down.

Log() reads a recording. Disk() goes through it and holds what is on disk for certain: the operations on a
file that had ended before a sync of it began which ended. At any place cut() makes what a power cut there may
leave: on top of that, of each operation that was begun, any part in units of sectors, later ones with
or without earlier ones; names as they were or as they became.

What it takes for granted of the host: a sector is written whole or not at all, a sync that succeeded is
true, a rename is one step, and bytes of one file never show up in another.
"""
import contextlib
import glob
import os
import random
import shutil
import struct
import threading

ENTRY = struct.Struct("<4sB3xQQQQqIIQ")
PUNCH = 2  # FALLOC_FL_PUNCH_HOLE
SECTOR = {"map": 512, "data": 4096}


class Entry:
    """One record. `kind` is a letter; see recorder.h. Its bytes stay in their file."""

    __slots__ = ("kind", "id", "inode", "offset", "length", "result", "flags", "size", "at", "files")

    def __init__(self, fields, files):
        _, kind, self.id, self.inode, self.offset, self.length, self.result, self.size, self.flags, self.at = fields
        self.kind = chr(kind)
        self.files = files

    @property
    def process(self):
        return self.id >> 32

    @property
    def payload(self):
        return os.pread(self.files[self.process].fileno(), self.size, self.at) if self.size else b""


def read_log(path):
    """Every record in order."""
    files = {int(name.rpartition(".")[2]): open(name, "rb")  # pylint: disable=consider-using-with
             for name in glob.glob(glob.escape(path) + ".*")}
    with open(path, "rb") as f:
        data = f.read()
    entries = []
    for fields in ENTRY.iter_unpack(data):
        if fields[0] != b"VREC":
            raise ValueError(f"record {len(entries)} of {path} is none")
        entries.append(Entry(fields, files))
    return entries


class Notes:
    """Notes of a test's own in a recording: `kind` is a letter, `text` comes back as the payload."""

    def __init__(self, path):
        self.lock = threading.Lock()
        self.fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.texts = os.open(f"{path}.{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self.end = 0

    def put(self, kind, text):
        data = text.encode()
        with self.lock:
            os.write(self.texts, data)
            os.write(self.fd, ENTRY.pack(b"VREC", ord(kind), os.getpid() << 32, 0, 0, 0, 0, len(data), 0, self.end))
            self.end += len(data)


class Operation:
    """A change of a file's bytes: a write, a punch, a new size."""

    def __init__(self, entry):
        self.entry = entry
        self.done = False

    def parts(self, sector):
        """(offset, bytes) that get to the disk or not, each for itself."""
        entry = self.entry
        if entry.kind == "P":
            if entry.flags & PUNCH:
                yield from ((at, bytes(min(65536, entry.offset + entry.length - at)))
                            for at in range(entry.offset, entry.offset + entry.length, 65536))
            return
        payload = entry.payload
        for at in range(0, len(payload), sector):
            yield entry.offset + at, payload[at:at + sector]


class File:
    """What is on disk of one file for certain, in `path`, and what may be."""

    def __init__(self, path):
        self.path = path
        self.pending = []
        with open(path, "ab"):
            pass

    def settle(self, operations):
        with open(self.path, "r+b") as f:
            for operation in operations:
                if operation.entry.kind == "T":
                    f.truncate(operation.entry.length)
                    continue
                for offset, part in operation.parts(1 << 20):
                    f.seek(offset)
                    f.write(part)
        gone = set(map(id, operations))
        self.pending = [o for o in self.pending if id(o) not in gone]


class Disk:
    """The directory of one volume. `work` is a directory for the files' certain bytes."""

    def __init__(self, work):
        self.work = work
        self.files = {}     # by inode
        self.names = {}     # certain: name -> File
        self.renames = []   # begun, not certain: (entry, File, done)
        self.calls = {}     # by id of what has not ended
        self.processes = set()
        self.made = 0

    def adopt(self, directory, inodes):
        """Begins with copies of files that are in `directory`; in the recording they have these inodes."""
        for name, inode in inodes.items():
            file = self.make(inode)
            os.link(os.path.join(directory, name), file.path + ".start")
            os.replace(file.path + ".start", file.path)
            self.names[name] = file

    def make(self, inode):
        self.made += 1
        self.files[inode] = File(os.path.join(self.work, f"file-{self.made}"))
        return self.files[inode]

    def feed(self, entry):
        """Goes on by one record."""
        if entry.kind in "WPTSCR" and entry.process not in self.processes:
            self.succeed(entry.process)
        handler = getattr(self, f"feed_{entry.kind}", None)
        if handler:
            handler(entry)

    def succeed(self, process):
        """Another process works on the files: the kernel has let go of what the one before began."""
        self.processes.add(process)
        for entry, what in self.calls.values():
            if entry.kind in "WPT":
                what.done = True
            elif entry.kind == "R":
                what[2] = True
        self.calls.clear()

    def feed_C(self, entry):
        file = self.make(entry.inode)
        if entry.payload == b"data":
            self.names["data"] = file

    def begin(self, entry):
        file = self.files.get(entry.inode)
        if file:
            operation = Operation(entry)
            file.pending.append(operation)
            self.calls[entry.id] = (entry, operation)

    def end(self, entry):
        begun = self.calls.pop(entry.id, None)
        if begun:
            begun[1].done = True

    feed_W = feed_P = feed_T = begin
    feed_w = feed_p = feed_t = end

    def feed_S(self, entry):
        """A sync makes certain what has ended now, once it has ended itself."""
        file = self.files.get(entry.inode)
        covered = [o for o in file.pending if o.done] if file else \
            [r for r in self.renames if r[2] and r[0].offset == entry.inode]
        self.calls[entry.id] = (entry, (file, covered))

    def feed_s(self, entry):
        begun = self.calls.pop(entry.id, None)
        if not begun or entry.result < 0:
            return
        file, covered = begun[1]
        if file:
            file.settle([o for o in covered if any(o is p for p in file.pending)])
            return
        for rename in covered:
            if rename in self.renames:
                self.names[rename[0].payload.decode()] = rename[1]
                self.renames = self.renames[self.renames.index(rename) + 1:]

    def feed_R(self, entry):
        rename = [entry, self.files[entry.inode], False]
        self.renames.append(rename)
        self.calls[entry.id] = (entry, rename)

    def feed_r(self, entry):
        begun = self.calls.pop(entry.id, None)
        if begun:
            begun[1][2] = True

    def names_now(self, chance):
        """Names as they may be: renames up to one of those that were begun."""
        names = dict(self.names)
        for rename in self.renames[:chance.randint(0, len(self.renames))]:
            names[rename[0].payload.decode()] = rename[1]
        return names

    @contextlib.contextmanager
    def cut(self, target, chance, keep=None):
        """Files as a power cut may leave them now, in the directory `target`; `data` is a link to the
        certain bytes, which are put back afterwards. `keep`, of a name and an operation, decides in place of
        chance whether an operation got to the disk."""
        names = self.names_now(chance)
        share = chance.choice((0.0, 1.0, 0.5, 0.1, 0.9))
        torn = chance.random() < 0.5
        undo = []
        for name, file in names.items():
            path = os.path.join(target, name)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            if name == "data":
                os.link(file.path, path)
            else:
                shutil.copyfile(file.path, path)
            operations = [o for o in file.pending if keep(name, o)] if keep else file.pending
            self.apply(path, operations, SECTOR[name], (1.0, False, chance) if keep else (share, torn, chance),
                       undo if name == "data" else None)
        try:
            yield {"share": share, "torn": torn, "pending": sum(len(f.pending) for f in names.values())}
        finally:
            with open(names["data"].path, "r+b") as f:
                for offset, old in reversed(undo):
                    f.seek(offset)
                    f.write(old)

    @staticmethod
    def apply(path, operations, sector, how, undo):
        share, torn, chance = how
        with open(path, "r+b") as f:
            for operation in operations:
                if operation.entry.kind == "T":
                    continue
                whole = chance.random() < share
                for offset, part in operation.parts(sector):
                    if not (chance.random() < share if torn else whole):
                        continue
                    f.seek(offset)
                    if undo is not None:
                        undo.append((offset, f.read(len(part))))
                        f.seek(offset)
                    f.write(part)


def places(entries, seed, count=None):
    """Numbers of records, in order; a power cut comes before each. Two sets: the places round about a name that
    changes, and `count` others, half of them at ends of syncs; without `count` the end of every sync, and a quarter as
    many anywhere."""
    chance = random.Random(seed)
    ends = [i + 1 for i, entry in enumerate(entries) if entry.kind == "s"]
    names = [i for i, entry in enumerate(entries) if entry.kind in "CRr"]
    near = {n for i in names for n in range(i - 4, i + 14) if 0 <= n < len(entries)}
    count = count or len(ends) * 5 // 4
    some = set(ends if count > len(ends) else chance.sample(ends, count // 2))
    while len(some) < min(count, len(entries) // 2):
        some.add(chance.randrange(len(entries)))
    return sorted(near), sorted(some - near)
