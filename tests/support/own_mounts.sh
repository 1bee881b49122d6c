#!/bin/sh
# Runs a test in a mount namespace of its own, without what other tests have mounted: namespaces, which copy all mounts
# there are, hold nothing then that another test wants to unmount, and what a test leaves mounted goes with it. So do the
# processes that it leaves (own_processes.py).
#
# usage: own_mounts.sh PROGRAM [ARGUMENT...]

# Mounts below directories of tests (scratch.h, harness.py), the last one first.
mounts_of_tests() {
    found=
    while read -r _ _ _ _ point _; do
        case $point in
        "${TMPDIR:-/tmp}"/varve-* | /tmp/varve-*) found="$point $found" ;;
        esac
    done </proc/self/mountinfo
    echo "$found"
}

[ "$(id -u)" = 0 ] || exec "$@" # lint and parsers need no mounts
[ "$1" = --inside ] || exec unshare --mount --propagation private "$0" --inside "$@"
shift
points=$(mounts_of_tests)
# A name with a space or the like would be written otherwise; none of ours has one.
# shellcheck disable=SC2086
[ -z "$points" ] || umount --lazy $points 2>/dev/null
exec python3 -IS "${0%/*}/own_processes.py" "$@"
