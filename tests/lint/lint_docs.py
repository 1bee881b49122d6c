#!/usr/bin/env python3
"""Documents that name files or symbols which do not exist.

usage: lint_docs.py TREE

In README.md and docs/, a word in `backquotes` that looks like a path of this tree (base/err.h,
tools/test) must exist; one that looks like a function (blobs_open()) must stand in some C file; and
relative links must lead somewhere. Invariants are cited as I1 to I10 only. Words of working
arrangements and paths of one machine stand nowhere.
"""
import fnmatch
import os
import re
import subprocess
import sys

FOLDERS = ("base/", "store/", "registry/", "fuse/", "gc/", "snapd/", "tools/", "tests/", "docs/")
PRIVATE = re.compile(r"/work/|\.\./shared|/root/\.|\bhelper-\d|\bissue \d+\b", re.I)


def listed(tree, *patterns):
    args = ["git", "-C", tree, "ls-files", "-co", "--exclude-standard", *patterns]
    result = subprocess.run(args, capture_output=True, text=True, check=False)
    if result.returncode == 0 and result.stdout:
        names = result.stdout.split("\n")
    else:
        names = [os.path.relpath(os.path.join(d, f), tree) for d, _, fs in os.walk(tree)
                 for f in fs if not patterns or any(fnmatch.fnmatch(f, p) for p in patterns)]
    return [n for n in names if n and os.path.isfile(os.path.join(tree, n))]


def read(tree, path):
    with open(os.path.join(tree, path), encoding="utf-8", errors="replace") as f:
        return f.read()


def check_words(tree, path, line, number, symbols, say):
    for word in re.findall(r"`([^`]+)`", line):
        word = word.strip()
        if word.startswith(FOLDERS) and " " not in word and not re.search(r"[*<>{}]", word):
            if not os.path.exists(os.path.join(tree, word.rstrip("/"))):
                say(path, number, f"`{word}` does not exist")
        match = re.fullmatch(r"([a-z]\w+)\(\)", word)
        if match and "_" in match.group(1) and match.group(1) not in symbols:
            say(path, number, f"`{word}` is in no C file")


def check_links(tree, path, line, number, say):
    for target in re.findall(r"\]\(([^)#\s]+)", line):
        if re.match(r"[a-z]+:", target):
            continue
        if not os.path.exists(os.path.join(tree, os.path.dirname(path), target)):
            say(path, number, f"link to {target} leads nowhere")


def main():
    tree = sys.argv[1]
    found = []

    def say(path, number, text):
        found.append(f"{path}:{number}: {text}")

    symbols = set()
    code = listed(tree, "*.c", "*.h")
    for path in code:
        symbols.update(re.findall(r"\b[a-z]\w+(?=\()", read(tree, path)))
    documents = [p for p in listed(tree, "*.md") if p == "README.md" or p.startswith("docs/")]
    if not documents:
        say("docs/", 1, "there is no document")
    for path in documents:
        for number, line in enumerate(read(tree, path).split("\n"), 1):
            check_words(tree, path, line, number, symbols, say)
            check_links(tree, path, line, number, say)
    me = os.path.basename(__file__)
    for path in listed(tree):
        if os.path.basename(path) in (me, "lint_selftest.py"):
            continue
        for number, line in enumerate(read(tree, path).split("\n"), 1):
            if PRIVATE.search(line):
                say(path, number, f"names something private: {line.strip()[:80]}")
            if path.endswith((".c", ".h", ".md")):
                for cited in re.findall(r"\(I(\d+)\)", line):
                    if not 1 <= int(cited) <= 10:
                        say(path, number, f"there is no invariant I{cited}")
    for line in found:
        print(line)
    print(f"{len(documents)} documents, {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
