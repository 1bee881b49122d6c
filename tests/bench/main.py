#!/usr/bin/env python3
"""Measures varve against other programs on this machine and prints Markdown tables.

usage: main.py BUILD [--rounds N] [GROUP...]
"""
import argparse
import os
import platform
import sys

from bench_site import Site  # makes the shared modules known
import bench_checkpoints
import bench_groups
import bench_registry
import bench_volumes

GROUPS = {**bench_groups.GROUPS, **bench_registry.GROUPS, **bench_volumes.GROUPS,
          **bench_checkpoints.GROUPS}


def main():
    parser = argparse.ArgumentParser(prog="varve-bench")
    parser.add_argument("build", help="build directory with the programs")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=", ".join(GROUPS))
    arguments = parser.parse_intermixed_args()
    unknown = [name for name in arguments.groups if name not in GROUPS]
    if unknown:
        parser.error(f"unknown group {unknown[0]}; there are {', '.join(GROUPS)}")
    print(f"{os.cpu_count()} processors, Linux {platform.release()}")
    site = Site(arguments.build)
    try:
        for name in arguments.groups or GROUPS:
            GROUPS[name](site, arguments.rounds)
    finally:
        site.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
