#!/usr/bin/env python3
"""The rules of docs/STYLE.md that a program can check, over every C file of the tree.

usage: lint_style.py TREE

Prints one line per finding (file:line: rule: text) and ends with status 1 if there is any.
Exemptions stand in EXEMPT with their reason; an exemption that is not needed is a finding too.
"""
import os
import re
import subprocess
import sys

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 80
LINE_COLUMNS_MAX = 100

# (file, what) -> reason. `what` is "file" or a function's name.
EXEMPT = {}

# Folders in their order: a folder includes only itself and lower numbers.
RANKS = {"base": 0, "store": 1, "registry": 2, "fuse": 2, "gc": 3, "snapd": 4, "tools": 5}
# tools/ is a client: it knows base/ alone.
ONLY_BASE = {"tools"}

BANNED = {
    "sprintf": "snprintf",
    "vsprintf": "vsnprintf",
    "strcpy": "snprintf or memcpy",
    "strcat": "buf_addf",
    "gets": "fdio_read_all",
    "strtok": "strsep or strchr",
    "system": "spawn_tool",
    "popen": "spawn_tool",
    "atoi": "strtol with checks",
    "tmpnam": "publish_begin",
    "mktemp": "publish_begin",
}
BANNED_OUTSIDE_MAIN = {"exit": "return an error", "abort": "return an error"}

# Who may include a library's header.
OWNERS = {
    "sqlite3.h": r"store/catalog",
    "curl/curl.h": r"(registry|tools)/",
    "archive.h": r"snapd/(commit|restore)/",
    "archive_entry.h": r"snapd/(commit|restore)/",
    "microhttpd.h": r"snapd/api/",
    "ini.h": r"snapd/options",
    "openssl/evp.h": r"base/(digest|hmac)",
    "openssl/hmac.h": r"base/hmac",
    "openssl/crypto.h": r"base/hmac",
    "openssl/err.h": r"registry/registry_trust",
    "openssl/pem.h": r"registry/registry_trust",
    "openssl/x509_vfy.h": r"registry/registry_trust",
    "zstd.h": r"snapd/(commit|restore)/|fuse/artifact/pack_frame",
    "isa-l/igzip_lib.h": r"snapd/restore/",
    "isa-l/crc.h": r"snapd/restore/",
    "fuse_lowlevel.h": r"fuse/volume/",
    "liburing.h": r"fuse/volume/volume_ring",
}

# Switches with one reader, so that every test takes them to mean the same.
READERS = {"VARVE_LONG": "tests/support/long_counts.h"}

FUNCTION = re.compile(r"^[A-Za-z_].*?\b([A-Za-z_]\w*)\(.*[^;]$")


def strip(text):
    """Blanks comments and literals, keeping line structure."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0))
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, text,
                  flags=re.S)


def functions(lines):
    """Yields (name, first line, length) for each function with its braces in column one."""
    start = None
    for number, line in enumerate(lines, 1):
        if line.startswith("{"):
            head = number - 1
            while head > 1 and not re.match(r"[A-Za-z_]", lines[head - 1]):
                head -= 1
            while head > 1 and re.match(r"[A-Za-z_]", lines[head - 2]) and \
                    not lines[head - 2].rstrip().endswith(";"):
                head -= 1
            signature = " ".join(lines[head - 1:number - 1])
            match = re.search(r"([A-Za-z_]\w*)\s*\(", signature)
            start = (match.group(1) if match else "?", head) if match else None
        elif line.startswith("}") and start:
            yield start[0], start[1], number - start[1] + 1
            start = None


def is_main_file(path, code):
    return re.search(r"^int main\(", code, re.M) is not None or path.startswith("tests/")


class Linter:
    def __init__(self, tree):
        self.tree = tree
        self.found = []
        self.used = set()
        self.headers = {}

    def say(self, path, line, rule, text):
        self.found.append(f"{path}:{line}: {rule}: {text}")

    def exempt(self, path, what):
        if (path, what) in EXEMPT:
            self.used.add((path, what))
            return True
        return False

    def lengths(self, path, raw, code):
        lines = raw.split("\n")
        if len(lines) - 1 > FILE_LINES_MAX and not self.exempt(path, "file"):
            self.say(path, 1, "file-length", f"{len(lines) - 1} lines, at most {FILE_LINES_MAX}")
        for name, line, length in functions(code.split("\n")):
            if length > FUNCTION_LINES_MAX and not self.exempt(path, name):
                self.say(path, line, "function-length",
                         f"{name} has {length} lines, at most {FUNCTION_LINES_MAX}")
        for number, line in enumerate(lines, 1):
            if len(line) > LINE_COLUMNS_MAX:
                self.say(path, number, "line-length", f"{len(line)} columns")
            if line != line.rstrip():
                self.say(path, number, "white-space", "at the end of the line")
            if re.search(r"\b(TODO|FIXME|XXX|HACK)\b", line):
                self.say(path, number, "open-end", line.strip())

    def calls(self, path, code):
        banned = dict(BANNED)
        if not is_main_file(path, code):
            banned.update(BANNED_OUTSIDE_MAIN)
        pattern = re.compile(r"(?<![\w.>])(" + "|".join(banned) + r")\s*\(")
        for number, line in enumerate(code.split("\n"), 1):
            for match in pattern.finditer(line):
                self.say(path, number, "banned-call",
                         f"{match.group(1)}(), use {banned[match.group(1)]}")

    def switches(self, path, raw):
        for number, line in enumerate(raw.split("\n"), 1):
            match = re.search(r'\bgetenv\("(\w+)"\)', line)
            if match and READERS.get(match.group(1), path) != path:
                self.say(path, number, "switch-reader", f"{match.group(1)}, use {READERS[match.group(1)]}")

    def includes(self, path, raw):
        folder = path.split("/")[0]
        for number, line in enumerate(raw.split("\n"), 1):
            match = re.match(r'\s*#\s*include\s+(["<])([^">]+)[">]', line)
            if not match:
                continue
            kind, name = match.groups()
            if kind == '"' and "/" in name:
                self.say(path, number, "include-path", f'"{name}" is not a plain name')
            if kind == '"' and folder in RANKS:
                self.check_rank(path, number, folder, name)
            if name in OWNERS and folder in RANKS and not re.match(OWNERS[name], path):
                self.say(path, number, "library-owner", f"<{name}> belongs to {OWNERS[name]}")

    def check_rank(self, path, number, folder, name):
        owner = self.headers.get(name)
        if owner is None:
            self.say(path, number, "include-missing", f'"{name}" is in no folder')
            return
        if owner == folder:
            return
        if owner not in RANKS or RANKS[owner] >= RANKS[folder] or \
                (folder in ONLY_BASE and owner != "base"):
            self.say(path, number, "folder-order", f'{folder}/ may not include "{name}" of {owner}/')

    def header(self, path, raw):
        if "#pragma once" not in raw:
            self.say(path, 1, "header-guard", "no #pragma once")
        name = os.path.basename(path)
        if not raw.startswith(f"/* {name} - "):
            self.say(path, 1, "header-theory", f"does not begin with '/* {name} - ' and its job")

    def run(self, files):
        seen = {}
        for path in files:
            name = os.path.basename(path)
            if name in seen and not path.endswith("meson.build"):
                self.say(path, 1, "file-name", f"{seen[name]} has the same name")
            seen[name] = path
            if path.endswith(".h"):
                self.headers[name] = path.split("/")[0]
        for path in files:
            with open(os.path.join(self.tree, path), encoding="utf-8") as f:
                raw = f.read()
            code = strip(raw)
            self.lengths(path, raw, code)
            self.calls(path, code)
            self.switches(path, raw)
            self.includes(path, raw)
            if path.endswith(".h"):
                self.header(path, raw)
        for path, what in EXEMPT:
            if (path, what) not in self.used:
                self.say(path, 1, "exemption", f"{what} does not need it any more")


def c_files(tree):
    """Files that git tracks or would track; outside of a checkout, all files."""
    args = ["git", "-C", tree, "ls-files", "-co", "--exclude-standard", "*.c", "*.h"]
    result = subprocess.run(args, capture_output=True, text=True, check=False)
    if result.returncode == 0 and result.stdout:
        listed = result.stdout.split("\n")
    else:
        listed = [os.path.relpath(os.path.join(d, f), tree)
                  for d, _, fs in os.walk(tree) for f in fs if f.endswith((".c", ".h"))]
    return sorted(p for p in listed if p and os.path.exists(os.path.join(tree, p)))


def main():
    linter = Linter(sys.argv[1])
    files = c_files(sys.argv[1])
    if not files:
        print(f"no C file below {sys.argv[1]}")
        return 1
    linter.run(files)
    for line in linter.found:
        print(line)
    print(f"{len(files)} files, {len(linter.found)} findings")
    return 1 if linter.found else 0


if __name__ == "__main__":
    sys.exit(main())
