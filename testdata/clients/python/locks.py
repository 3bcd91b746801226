"""Takes and releases locks over TLS through a redis-py client that finds the leader by itself, while a test kills nodes and replaces certificates; see ../README.md under "Locks over TLS".

    python3 locks.py sentinel NAME
"""

import os
import pathlib
import random
import secrets
import sys
import threading
import time

import redis

import finder

LOCKERS = 2  # callers that contend for the same locks
SHARED_LOCKS = 3  # lock:shared:0 and so on
LEASE_MS = 30_000  # longer than any outage: a lock that ends is lost
KEEP_PAUSE_S = 0.2
MAX_PAUSE_S = 0.04  # between two tries of a lock that is held, and two uses
ERROR_PAUSE_S = 0.02
SCRIPTS = pathlib.Path(__file__).resolve().parent.parent / "lua"

printing = threading.Lock()


def say(*words):
    with printing:
        print(*words, flush=True)


def always(call, *args, **options):
    """Repeats a call until it succeeds."""
    while True:
        try:
            return call(*args, **options)
        except redis.RedisError as err:
            say("err", type(err).__name__, str(err).replace("\n", " "))
            time.sleep(ERROR_PAUSE_S)


def pause():
    """Waits for a moment, so that others get the lock too."""
    time.sleep(random.random() * MAX_PAUSE_S)


class Locker:
    """A client that takes locks."""

    def __init__(self, client):
        self.client = client
        self.renewal, self.release = (client.register_script((SCRIPTS / f"{name}.lua").read_text()) for name in ("lock_renew", "lock_release"))

    def acquire(self, lock):
        """Waits for a lock and returns the token in it. A try whose reply was lost may have succeeded, so it looks whose the lock is, and renews its own: the lease runs since that try."""
        token = secrets.token_hex(10)
        while not always(self.client.set, lock, token, nx=True, px=LEASE_MS):
            if always(self.client.get, lock) == token.encode():
                self.renew(lock, token)
                break
            pause()
        return token

    def fence(self, lock):
        return always(self.client.execute_command, "FENCE", lock)

    def renew(self, lock, token):
        """Begins the lease of a held lock again."""
        if always(self.renewal, keys=[lock], args=[token, LEASE_MS]) != 1:
            say("lost", lock)

    def use(self, lock):
        """Takes a lock, raises the lock's counter in the way that loses updates unless a lock keeps others out, renews the lease, and releases the lock."""
        token, counter = self.acquire(lock), f"{lock}:counter"
        fence = self.fence(lock)
        count = int(always(self.client.get, counter) or 0) + 1
        always(self.client.set, counter, count)
        self.renew(lock, token)
        say("held", lock, fence, count)
        always(self.release, keys=[lock], args=[token])


def main():
    if len(sys.argv) != 3 or sys.argv[1] != "sentinel" or not os.environ.get("COORDD_ADDRS"):
        sys.exit("usage: COORDD_ADDRS=host:port,... locks.py sentinel NAME")
    client, stopped = finder.connect(), threading.Event()
    say("version", redis.__version__)
    try:
        say("denied", client.set("other:1", "x"))
    except redis.RedisError as err:
        say("denied", type(err).__name__, err)
    locker, own = Locker(client), f"lock:own:{sys.argv[2]}"
    token = locker.acquire(own)

    def use(i):
        while not stopped.is_set():
            locker.use(f"lock:shared:{i % SHARED_LOCKS}")
            pause()
            i += 1

    def keep():
        while not stopped.is_set():
            locker.renew(own, token)
            say("kept", locker.fence(own))
            time.sleep(KEEP_PAUSE_S)

    callers = [threading.Thread(target=use, args=(i,)) for i in range(LOCKERS)] + [threading.Thread(target=keep)]
    for c in callers:
        c.start()
    sys.stdin.read()
    stopped.set()
    for c in callers:
        c.join()
    say("end")


main()
