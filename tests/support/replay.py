"""Power cuts, from what recorder.h wrote down.

Log() reads a recording. Disk() goes through it and holds what is on disk for certain: the operations on a
file that had ended before a sync of it began which ended. At any place cut() makes what a power cut there may
leave: on top of that, of each operation that was begun, any part in units of sectors, later ones with
or without earlier ones; sizes and names as they were or as they became.

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
    """Notes of a test's own in a recording: `kind` is a letter, `text` comes back as the payload, `numbers` as inode,
    offset and length."""

    def __init__(self, path):
        self.lock = threading.Lock()
        self.fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.texts = os.open(f"{path}.{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self.end = 0

    def put(self, kind, text="", numbers=(0, 0, 0)):
        data = text.encode()
        with self.lock:
            os.write(self.texts, data)
            os.write(self.fd, ENTRY.pack(b"VREC", ord(kind), os.getpid() << 32, *numbers, 0, len(data), 0, self.end))
            self.end += len(data)


class Operation:
    """A change of a file's bytes: a write, a punch, a new size."""

    def __init__(self, entry, grows):
        self.entry = entry
        self.grows = grows  # a write that ends behind the file's end
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
        self.size = 0  # that the kernel knows, which is not that on disk

    def begin(self, entry):
        end = entry.length if entry.kind == "T" else entry.offset + entry.size
        grows = entry.kind == "W" and end > self.size
        if entry.kind == "T" and end < self.size:
            raise ValueError("a file that becomes shorter is not replayed")
        if entry.kind in "WT":
            self.size = max(self.size, end)
        self.pending.append(Operation(entry, grows))
        return self.pending[-1]

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


class Change:
    """A name of a directory that is made, or becomes that of something else."""

    def __init__(self, name, thing, done):
        self.name = name
        self.thing = thing
        self.done = done


class Directory:
    """Names: those that are certain, and what was begun since."""

    def __init__(self):
        self.names = {}
        self.pending = []

    def begin(self, name, thing, done):
        self.pending.append(Change(name, thing, done))
        return self.pending[-1]

    def settle(self, changes):
        for change in changes:
            if change in self.pending:
                at = self.pending.index(change) + 1
                for one in self.pending[:at]:
                    self.names[one.name] = one.thing
                self.pending = self.pending[at:]

    def now(self, chance):
        """Names as they may be: changes up to one of those that were begun."""
        names = dict(self.names)
        for change in self.pending[:chance.randint(0, len(self.pending))]:
            names[change.name] = change.thing
        return names


class Disk:
    """The files of a volume and the directories that they are in. `work` is a directory for the files' certain
    bytes."""

    def __init__(self, work):
        self.work = work
        self.files = {}        # by inode
        self.directories = {}  # by inode
        self.home = None       # the Directory with `data`
        self.calls = {}        # by id of what has not ended
        self.seen = set()      # (process, inode)
        self.made = 0

    @property
    def names(self):
        """Certain ones of the volume."""
        return self.home.names if self.home else {}

    def adopt(self, directory, inodes, home):
        """Begins with copies of files that are in `directory`; in the recording they have these inodes, and their
        directory has `home`."""
        self.home = self.at(home)
        for name, inode in inodes.items():
            file = self.make(inode)
            os.link(os.path.join(directory, name), file.path + ".start")
            os.replace(file.path + ".start", file.path)
            file.size = os.stat(file.path).st_size
            self.home.names[name] = file

    def make(self, inode):
        self.made += 1
        self.files[inode] = File(os.path.join(self.work, f"file-{self.made}"))
        return self.files[inode]

    def at(self, inode):
        return self.directories.setdefault(inode, Directory())

    def feed(self, entry):
        """Goes on by one record."""
        if entry.kind in "WPTS" and entry.inode in self.files and (entry.process, entry.inode) not in self.seen:
            self.succeed(entry)
        handler = getattr(self, f"feed_{entry.kind}", None)
        if handler:
            handler(entry)

    def succeed(self, first):
        """Another process works on a file: the kernel has let go of what the one before began there."""
        self.seen.add((first.process, first.inode))
        for number, (entry, what) in list(self.calls.items()):
            if entry.inode == first.inode and entry.process != first.process:
                if entry.kind in "WPTR":
                    what.done = True
                del self.calls[number]

    def feed_C(self, entry):
        name, home = entry.payload.decode(), self.at(entry.offset)
        home.begin(name, self.make(entry.inode), True)
        if name == "data":
            self.home = home

    def feed_M(self, entry):
        self.directories[entry.inode] = Directory()
        self.at(entry.offset).begin(entry.payload.decode(), self.directories[entry.inode], True)

    def begin(self, entry):
        file = self.files.get(entry.inode)
        if file:
            self.calls[entry.id] = (entry, file.begin(entry))

    def end(self, entry):
        begun = self.calls.pop(entry.id, None)
        if begun:
            begun[1].done = True

    feed_W = feed_P = feed_T = begin
    feed_w = feed_p = feed_t = feed_r = end

    def feed_S(self, entry):
        """A sync makes certain what has ended now, once it has ended itself."""
        thing = self.files.get(entry.inode) or self.directories.get(entry.inode)
        if thing:
            self.calls[entry.id] = (entry, (thing, [o for o in thing.pending if o.done]))

    def feed_s(self, entry):
        begun = self.calls.pop(entry.id, None)
        if begun and entry.result >= 0:
            thing, covered = begun[1]
            thing.settle([o for o in covered if any(o is p for p in thing.pending)])

    def feed_R(self, entry):
        thing = self.files.get(entry.inode) or self.directories.get(entry.inode)
        if thing:
            self.calls[entry.id] = (entry, self.at(entry.offset).begin(entry.payload.decode(), thing, False))

    @contextlib.contextmanager
    def cut(self, target, chance, keep=None, home=None):
        """Files as a power cut may leave them now, in the directory `target`; `data` is a link to the
        certain bytes, which are put back afterwards. `keep`, of a name and an operation, decides in place of
        chance whether an operation got to the disk. `home`: a directory other than that of the volume."""
        names = (home or self.home).now(chance)
        share = chance.choice((0.0, 1.0, 0.5, 0.1, 0.9))
        torn = chance.random() < 0.5
        undo, size = [], os.stat(names["data"].path).st_size if "data" in names else 0
        for name in os.listdir(target):
            os.unlink(os.path.join(target, name))
        for name, file in names.items():
            path = os.path.join(target, name)
            if name == "data":
                os.link(file.path, path)
            else:
                shutil.copyfile(file.path, path)
            operations = [o for o in file.pending if keep(name, o)] if keep else file.pending
            self.apply(path, operations, SECTOR.get(name, 512), (1.0, False, chance) if keep else (share, torn, chance),
                       undo if name == "data" else None)
        try:
            yield {"share": share, "torn": torn, "pending": sum(len(f.pending) for f in names.values()),
                   "names": sorted(names)}
        finally:
            self.put_back(names.get("data"), undo, size)

    @staticmethod
    def put_back(data, undo, size):
        if not data:
            return
        with open(data.path, "r+b") as f:
            for offset, old in reversed(undo):
                f.seek(offset)
                f.write(old)
            f.truncate(size)

    @staticmethod
    def apply(path, operations, sector, how, undo):
        share, torn, chance = how
        with open(path, "r+b") as f:
            size = os.fstat(f.fileno()).st_size
            for operation in operations:
                whole = chance.random() < share
                if operation.entry.kind == "T":
                    size = max(size, operation.entry.length) if whole else size
                    continue
                for offset, part in operation.parts(sector):
                    if not (chance.random() < share if torn else whole):
                        continue
                    f.seek(offset)
                    if undo is not None:
                        undo.append((offset, f.read(len(part))))
                        f.seek(offset)
                    f.write(part)
                    size = max(size, offset + len(part)) if operation.grows else size
            f.truncate(size)  # without the new size there is nothing behind the old end


class Extreme:
    """In place of chance: of what is not certain all is there, or nothing of the files' bytes; all names."""

    def __init__(self, share):
        self.share = share

    def choice(self, _):
        return self.share

    def random(self):
        return 0.5

    def randint(self, _, most):
        return most


def places(entries, seed, count=None):
    """Numbers of records, in order; a power cut comes before each. Two sets: the places round about a name that
    changes, and `count` others, half of them at ends of syncs; without `count` the end of every sync, and as many
    again anywhere."""
    chance = random.Random(seed)
    ends = [i + 1 for i, entry in enumerate(entries) if entry.kind == "s"]
    names = [i for i, entry in enumerate(entries) if entry.kind in "CRr"]
    near = {n for i in names for n in range(i - 4, i + 14) if 0 <= n < len(entries)}
    some = set(ends if count is None else chance.sample(ends, min(count // 2, len(ends))))
    count = min(2 * len(ends) if count is None else count, len(entries) // 2)
    while len(some) < count:
        some.add(chance.randrange(len(entries)))
    return sorted(near), sorted(some - near)
