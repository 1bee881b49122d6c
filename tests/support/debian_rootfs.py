#!/usr/bin/env python3
"""Assembles a small Debian root filesystem from the files of this host's own packages.

usage: debian_rootfs.py OUT.tar [PACKAGE...]

The closure of the essential packages (and those named) is read from dpkg, their files are put into
one tar with their real owners and modes, and a dpkg database of exactly these packages is added, so
that dpkg works inside. Manuals, documents and translations are left out, as slim images do. Needs
dpkg and root (to read every file); no network.
"""
import io
import os
import re
import subprocess
import sys
import tarfile

ROOTS = ["base-files", "base-passwd", "bash", "coreutils", "dash", "debianutils", "diffutils",
         "dpkg", "findutils", "grep", "gzip", "hostname", "init-system-helpers", "libc-bin",
         "libpam-modules", "libpam-runtime", "login", "mawk", "ncurses-base", "passwd",
         "perl-base", "sed", "tar", "util-linux"]
LEFT_OUT = re.compile(r"^/usr/share/(doc|man|locale|info|lintian)(/|$)")
MERGED = ["bin", "lib", "lib64", "sbin"]
EMPTY = ["dev", "proc", "sys", "tmp", "run", "root", "home", "mnt", "srv", "opt", "var/tmp",
         "var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers", "var/log",
         "var/cache", "etc"]


def query(fields):
    out = subprocess.run(["dpkg-query", "-W", "-f", fields], capture_output=True, text=True,
                         check=True).stdout
    return [line.split("\t") for line in out.split("\n") if line]


def closure(roots):
    """Names of installed packages that the roots need, with their architecture suffix."""
    depends, full, provided = {}, {}, {}
    rows = query("${Package}\t${binary:Package}\t${db:Status-Abbrev}\t${Pre-Depends}, ${Depends}"
                 "\t${Provides}\n")
    for package, binary, status, needs, provides in rows:
        if not status.startswith("ii") or package in full:
            continue
        full[package] = binary
        depends[package] = [[re.split(r"[ (:]", alternative.strip())[0]
                             for alternative in part.split("|")] for part in needs.split(",")]
        for name in provides.split(","):
            provided.setdefault(re.split(r"[ (:]", name.strip())[0], package)
    found, todo = {}, [r for r in roots if r in full]
    while todo:
        package = todo.pop()
        if package in found:
            continue
        found[package] = full[package]
        for alternatives in depends[package]:
            for name in alternatives:
                real = name if name in full else provided.get(name)
                if real:
                    todo.append(real)
                    break
    return found


def files_of(packages):
    """Real paths of the packages' files and directories, parents first."""
    paths = set()
    for binary in packages.values():
        listed = subprocess.run(["dpkg", "-L", binary], capture_output=True, text=True,
                                check=True).stdout
        for path in listed.split("\n"):
            if not path.startswith("/") or LEFT_OUT.match(path) or not os.path.lexists(path):
                continue
            real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
            if not (os.path.islink(real) and real.lstrip("/") in MERGED):
                paths.add(real)
    for path in subprocess.run(["find", "/etc/alternatives"], capture_output=True, text=True,
                               check=True).stdout.split("\n"):
        if path and os.path.lexists(path):
            target = os.path.realpath(path)
            if os.path.isdir(path) and not os.path.islink(path) or target in paths:
                paths.add(path)
    # Made by maintainer scripts, so in no package's list.
    paths.update(os.path.join("/etc/pam.d", name) for name in os.listdir("/etc/pam.d")
                 if name.startswith("common-"))
    for path in list(paths):
        while path != "/":
            path = os.path.dirname(path)
            paths.add(path)
    paths.discard("/")
    return sorted(paths)


def links_to(packages, paths):
    """Links such as /usr/bin/awk -> /etc/alternatives/awk, which no package owns."""
    have = set(paths)
    found = []
    for directory in ("/usr/bin", "/usr/sbin"):
        for name in os.listdir(directory):
            path = f"{directory}/{name}"
            if path not in have and os.path.islink(path) and \
                    os.readlink(path).startswith("/etc/alternatives/") and \
                    os.readlink(path) in have:
                found.append(path)
    return sorted(found)


def add_bytes(tar, name, data, mode=0o644):
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), mode
    tar.addfile(info, io.BytesIO(data))


def add_database(tar, packages):
    status = subprocess.run(["dpkg-query", "-s", *packages.values()], capture_output=True,
                            check=True).stdout
    add_bytes(tar, "var/lib/dpkg/status", re.sub(rb"\n\n+", b"\n\n", status) + b"\n")
    add_bytes(tar, "var/lib/dpkg/available", b"")
    for name in sorted(os.listdir("/var/lib/dpkg/info")):
        if name == "format" or name.rsplit(".", 1)[0].split(":")[0] in packages:
            with open(f"/var/lib/dpkg/info/{name}", "rb") as f:
                add_bytes(tar, f"var/lib/dpkg/info/{name}", f.read(),
                          os.stat(f.name).st_mode & 0o777)


def add_accounts(tar):
    for name in ("passwd", "group"):
        with open(f"/usr/share/base-passwd/{name}.master", "rb") as f:
            add_bytes(tar, f"etc/{name}", f.read().replace(b":*:", b":x:", -1))
    add_bytes(tar, "etc/shadow", b"root:*:19000:0:99999:7:::\n", 0o640)
    add_bytes(tar, "etc/gshadow", b"root:*::\n", 0o640)


def main():
    out, extra = sys.argv[1], sys.argv[2:]
    packages = closure(ROOTS + extra)
    paths = files_of(packages)
    paths += links_to(packages, paths)
    temporary = f"{out}.{os.getpid()}"
    with tarfile.open(temporary, "w", format=tarfile.PAX_FORMAT) as tar:
        have = {p.lstrip("/") for p in paths}
        for name in MERGED:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.mode = tarfile.SYMTYPE, f"usr/{name}", 0o777
            tar.addfile(info)
        for path in paths:
            if path.lstrip("/") not in ("etc/passwd", "etc/group", "etc/shadow", "etc/gshadow"):
                tar.add(path, arcname=path.lstrip("/"), recursive=False)
        for name in EMPTY:
            if name not in have:
                info = tarfile.TarInfo(name)
                info.type, info.mode = tarfile.DIRTYPE, 0o1777 if name.endswith("tmp") else 0o755
                tar.addfile(info)
        add_accounts(tar)
        add_database(tar, packages)
    os.rename(temporary, out)
    print(f"{len(packages)} packages, {len(paths)} files, {os.path.getsize(out) >> 20} MiB")


if __name__ == "__main__":
    main()
