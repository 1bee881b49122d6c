"""What the kernel says of failing block devices and file systems, by device and time.

Loop devices go from one test to the next, and tests run beside each other, so a line belongs to who had the
device when it was said: positions in the log (record numbers of /dev/kmsg) begin and end a time.
"""
import os
import re

WORDS = ("I/O error", "EXT4-fs error", "JBD2:", "Aborting journal")


def records():
    """(number, text) of all that is in the log still."""
    found = []
    fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    try:
        while True:
            try:
                line = os.read(fd, 8192).decode(errors="replace")
            except BrokenPipeError:  # older ones were overwritten meanwhile
                continue
            except BlockingIOError:
                return found
            head, _, text = line.partition(";")
            found.append((int(head.split(",")[1]), text.split("\n")[0]))
    finally:
        os.close(fd)


def position():
    """Where the next record will be."""
    found = records()
    return found[-1][0] + 1 if found else 0


def errors(device, begin, end=None):
    """Lines about errors that name this device ("loop3", or its journal "loop3-8"; not "loop31") and were said
    from `begin` to `end` (None: now)."""
    name = re.compile(rf"(?<![\w-]){re.escape(device)}(?:-\d+)?(?![\w-])")
    return [text for number, text in records()
            if number >= begin and (end is None or number < end) and name.search(text) and
            any(word in text for word in WORDS)]
