"""Writes through a redis-py client that finds the leader by itself, while a test kills leaders; see ../README.md under "Finding the leader".

    python3 discover.py sentinel PREFIX
"""

import os
import sys
import threading
import time

import redis

import finder

WRITERS = 4
ERROR_PAUSE_S = 0.02


def main():
    if len(sys.argv) != 3 or sys.argv[1] != "sentinel" or not os.environ.get("COORDD_ADDRS"):
        sys.exit("usage: COORDD_ADDRS=host:port,... discover.py sentinel PREFIX")
    prefix = sys.argv[2]
    lock, stopped = threading.Lock(), threading.Event()

    def say(*words):
        with lock:
            print(*words, flush=True)

    c = finder.connect()

    def write(i):
        n = 0
        while not stopped.is_set():
            key = f"{prefix}:{i}:{n}"
            n += 1
            try:
                c.set(key, n)
                say("ack", key)
            except redis.RedisError as err:
                say("err", type(err).__name__, str(err).replace("\n", " "))
                time.sleep(ERROR_PAUSE_S)

    writers = [threading.Thread(target=write, args=(i,)) for i in range(WRITERS)]
    for w in writers:
        w.start()
    sys.stdin.read()
    stopped.set()
    for w in writers:
        w.join()
    say("role", c.execute_command("ROLE")[0].decode())
    say("end")


main()
