"""What the checks stand on: the cluster's addresses, names that nobody else has, callers at once, and the reporting."""

import json
import os
import secrets
import sys
import threading
import time

NODES = [(a.rpartition(":")[0], int(a.rpartition(":")[2])) for a in os.environ["COORDD_ADDRS"].split(",")]


def node(i):
    """The host and port that the i-th caller talks to."""
    return NODES[i % len(NODES)]


def unique(name):
    """A name that no other run uses."""
    return f"{name}:{secrets.token_hex(6)}"


def check(library, text, run):
    """Runs a check and reports it."""
    line = {"library": library, "version": os.environ.get("VERSION", ""), "check": text, "ok": True}
    try:
        run()
    except Exception as err:  # whatever it is, the check failed
        line |= {"ok": False, "error": f"{type(err).__name__}: {err}"}
    print(json.dumps(line), flush=True)


def want(got, wanted, what):
    """Raises unless what was got is what is wanted."""
    if got != wanted:
        raise AssertionError(f"{what}: got {got!r}, want {wanted!r}")


def together(n, caller):
    """Runs n callers at once and returns their results; raises what the first of them raised."""
    results, errors = [None] * n, []

    def run(i):
        try:
            results[i] = caller(i)
        except Exception as err:
            errors.append(err)

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(40)
        if t.is_alive():
            raise TimeoutError("a caller is not done after 40 s")
    if errors:
        raise errors[0]
    return results


def until(condition, what, seconds=20):
    """Waits until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited in vain: {what}")
        time.sleep(0.01)


class Room:
    """Counts how many callers are inside at a time."""

    def __init__(self):
        self.inside = self.most = self.visits = 0
        self.mutex = threading.Lock()

    def visit(self):
        with self.mutex:
            self.inside += 1
            self.visits += 1
            self.most = max(self.most, self.inside)
        time.sleep(0.003)
        with self.mutex:
            self.inside -= 1


sys.dont_write_bytecode = True
