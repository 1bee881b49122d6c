#!/usr/bin/env python3
"""Lists and compares directory trees entry by entry; shares no code with the product.

usage: treecmp.py A B [--ignore PATH]...

An entry is: type, mode, owner, size, mtime in nanoseconds, link target, device number, extended
attributes, sha256 of the content, and which other names are the same inode. The root counts too.
Names are bytes. The trees are equal when every entry is; else each difference is a line and the
status is 1.
"""
import hashlib
import os
import stat
import sys


def attributes(path):
    found = {}
    for name in os.listxattr(path, follow_symlinks=False):
        # Bookkeeping of the mount itself, not of the tree.
        if not name.startswith("trusted.overlay."):
            found[name] = os.getxattr(path, name, follow_symlinks=False)
    return found


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        for chunk in iter(lambda: f.read(1 << 20), b""):
            digest.update(chunk)
    return digest.hexdigest()


def entry(path, st):
    kind = stat.S_IFMT(st.st_mode)
    found = {"type": oct(kind), "mode": oct(stat.S_IMODE(st.st_mode)), "uid": st.st_uid,
             "gid": st.st_gid, "mtime": st.st_mtime_ns, "xattrs": attributes(path)}
    if kind == stat.S_IFREG:
        found["size"] = st.st_size
        found["sha256"] = sha256(path)
    elif kind == stat.S_IFLNK:
        found["target"] = os.readlink(path)
    elif kind in (stat.S_IFCHR, stat.S_IFBLK):
        found["device"] = (os.major(st.st_rdev), os.minor(st.st_rdev))
    return found


def listing(root, ignore=()):
    """{relative path (bytes): attributes}, hard links as the sorted tuple of their names."""
    root = os.fsencode(root)
    entries = {}
    inodes = {}
    stack = [b"."]
    while stack:
        relative = stack.pop()
        if relative in ignore:
            continue
        path = os.path.join(root, relative)
        st = os.lstat(path)
        entries[relative] = entry(path, st)
        if not stat.S_ISDIR(st.st_mode) and st.st_nlink > 1:
            inodes.setdefault((st.st_dev, st.st_ino), []).append(relative)
        if stat.S_ISDIR(st.st_mode):
            for name in os.listdir(path):
                stack.append(os.path.normpath(os.path.join(relative, name)))
    for names in inodes.values():
        if len(names) > 1:
            for name in names:
                entries[name]["links"] = tuple(sorted(names))
    return entries


def differences(a, b, ignore_keys=()):
    found = []
    for path in sorted(a.keys() | b.keys()):
        name = path.decode(errors="backslashreplace")
        if path not in a or path not in b:
            found.append(f"{name}: only in the {'second' if path not in a else 'first'}")
            continue
        for key in sorted(a[path].keys() | b[path].keys()):
            if key not in ignore_keys and a[path].get(key) != b[path].get(key):
                found.append(f"{name}: {key} {a[path].get(key)!r} and {b[path].get(key)!r}")
    return found


def main():
    args = sys.argv[1:]
    ignore = set()
    while "--ignore" in args:
        at = args.index("--ignore")
        ignore.add(os.fsencode(args[at + 1]))
        del args[at:at + 2]
    a, b = (listing(root, ignore) for root in args)
    found = differences(a, b)
    for line in found[:200]:
        print(line)
    print(f"{len(a)} and {len(b)} entries, {len(found)} differences")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
