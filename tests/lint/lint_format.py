#!/usr/bin/env python3
"""clang-format over every C file. usage: lint_format.py TREE"""
import subprocess
import sys

from lint_style import c_files


def main():
    tree = sys.argv[1]
    result = subprocess.run(["clang-format", "--dry-run", "-Werror", *c_files(tree)], cwd=tree,
                            capture_output=True, text=True, check=False)
    sys.stdout.write(result.stderr[:20000])
    if result.returncode != 0:
        print("run clang-format -i on these files")
    return 1 if result.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
