#!/usr/bin/env python3
"""Each lint rule finds what it is for: a check that cannot fail is no check.

Makes small trees with one fault each and expects the rule's name in the output; a tree without
faults passes.
"""
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
from tap_report import explain  # noqa: E402  pylint: disable=wrong-import-position

GOOD_HEADER = "/* good.h - a header. */\n#pragma once\n"

STYLE = {
    "file-length": {"base/a.c": "int x;\n" * 601},
    "function-length": {"base/a.c": "int f(void)\n{\n" + "    x;\n" * 79 + "}\n"},
    "line-length": {"base/a.c": "int x; /* " + "a" * 100 + " */\n"},
    "white-space": {"base/a.c": "int x; \n"},
    "open-end": {"base/a.c": "/* TODO later */\n"},
    "banned-call": {"base/a.c": "int f(void)\n{\n    return system(0);\n}\n"},
    "switch-reader": {"tests/a.c": 'int f(void)\n{\n    return getenv("VARVE_LONG") != 0;\n}\n'},
    "include-path": {"store/a.c": '#include "../base/good.h"\n', "base/good.h": GOOD_HEADER},
    "include-missing": {"base/a.c": '#include "nowhere.h"\n'},
    "folder-order": {"base/a.c": '#include "good.h"\n', "store/good.h": GOOD_HEADER},
    "library-owner": {"snapd/a.c": "#include <sqlite3.h>\n"},
    "header-guard": {"base/good.h": "/* good.h - a header. */\n"},
    "header-theory": {"base/good.h": "#pragma once\n"},
    "file-name": {"base/a.c": "int x;\n", "store/a.c": "int x;\n"},
}
DOCS = {
    "does not exist": {"README.md": "see `base/none.h`\n"},
    "is in no C file": {"README.md": "see `no_such_call()`\n"},
    "leads nowhere": {"README.md": "see [this](docs/NONE.md)\n"},
    "names something private": {"README.md": "see /work/x\n"},
    "no invariant I11": {"README.md": "as (I11) says\n"},
}


def run(script, files):
    with tempfile.TemporaryDirectory() as tree:
        for path, text in files.items():
            os.makedirs(os.path.join(tree, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(tree, path), "w", encoding="utf-8") as f:
                f.write(text)
        result = subprocess.run([sys.executable, os.path.join(HERE, script), tree],
                                capture_output=True, text=True, check=False)
        return result.returncode, result.stdout


# What lint_keeper.py says of a library made of this source.
KEEPER = {
    "malloc() is nothing": "int epoll_wait(void); void *malloc(long);\n"
                           "void *f(void) { return epoll_wait() ? malloc(1) : 0; }\n",
    "SYS_openat is nothing": "int epoll_wait(void); long syscall(long, ...);\n"
                             "#define SYS_openat 257\n"
                             "long f(void) { return epoll_wait() + syscall(SYS_openat); }\n",
    "not keeper's library": "int close(int);\nint f(void) { return close(1); }\n",
    None: "int epoll_wait(void); int close(int);\n"
          "int f(void) { return close(epoll_wait()); }\n",
}


def run_keeper(source):
    with tempfile.TemporaryDirectory() as tree:
        path, library = os.path.join(tree, "a.c"), os.path.join(tree, "a.o")
        with open(path, "w", encoding="utf-8") as f:
            f.write(source)
        subprocess.run(["cc", "-c", "-o", library, path], check=True)
        result = subprocess.run([sys.executable, os.path.join(HERE, "lint_keeper.py"), library, path],
                                capture_output=True, text=True, check=False)
        return result.returncode, result.stdout


def main():
    cases = [("lint_style.py", rule, files) for rule, files in STYLE.items()]
    cases += [("lint_docs.py", text, files) for text, files in DOCS.items()]
    cases.append(("lint_style.py", None, {"base/good.h": GOOD_HEADER, "base/a.c": "int x;\n"}))
    cases.append(("lint_docs.py", None, {"README.md": "fine `good.h`\n"}))
    cases += [("lint_keeper.py", text, source) for text, source in KEEPER.items()]
    print(f"1..{len(cases)}")
    failed = 0
    for number, (script, expected, files) in enumerate(cases, 1):
        status, output = run_keeper(files) if script == "lint_keeper.py" else run(script, files)
        good = status == 0 if expected is None else status == 1 and expected in output
        failed += not good
        print(f"{'ok' if good else 'not ok'} {number} - {script} {expected or 'clean tree'}")
        if not good:
            explain(f"{script} {expected or 'clean tree'}", output)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
