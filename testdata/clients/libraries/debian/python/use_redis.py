"""python3-redis: its Lock, WATCH, blocking pops, and subscriptions."""

import sys

sys.dont_write_bytecode = True

import redis
from checks import Room, check, node, together, unique, until, want
from redis.exceptions import LockNotOwnedError, WatchError

LIBRARY = "python3-redis"


def connect(i):
    host, port = node(i)
    return redis.Redis(host=host, port=port, decode_responses=True, socket_timeout=30)


def one_holder():
    name, room = unique("lock"), Room()

    def caller(i):
        lock = connect(i).lock(name, timeout=5, sleep=0.005, blocking_timeout=30, thread_local=False)
        for _ in range(4):
            want(lock.acquire(), True, "acquire")
            room.visit()
            lock.release()

    together(6, caller)
    want((room.most, room.visits), (1, 24), "most at a time, visits")


def extended():
    name = unique("lock")
    first = connect(0).lock(name, timeout=0.4)
    second = connect(1).lock(name, timeout=0.4, blocking=False)
    want(first.acquire(blocking=False), True, "the first")
    want(first.extend(1), True, "extend")
    want(second.acquire(), False, "the second")
    want(first.reacquire(), True, "reacquire")
    until(second.acquire, "the lease's end")
    try:
        first.release()
    except LockNotOwnedError:
        return
    raise AssertionError("a lock that is over was released")


def watched_counter():
    key = unique("counter")

    def caller(i):
        with connect(i).pipeline() as pipe:
            done = 0
            while done < 10:
                try:
                    pipe.watch(key)
                    n = int(pipe.get(key) or 0)
                    pipe.multi()
                    pipe.set(key, n + 1)
                    pipe.execute()
                    done += 1
                except WatchError:
                    pass

    together(5, caller)
    want(connect(0).get(key), "50", "the counter")


def blocking_pops():
    key = unique("queue")

    def worker(i):
        taken = []
        while True:
            _, item = connect(i).blpop([key], timeout=20)
            if item == "end":
                return taken
            taken.append(int(item))

    def caller(i):
        if i < 4:
            return worker(i)
        producer = connect(1)
        for item in [*range(40), *["end"] * 4]:
            producer.rpush(key, item)
        return []

    want(sorted(sum(together(5, caller), [])), list(range(40)), "the elements taken")


def messages():
    channel = unique("channel")
    subscribers = [connect(i).pubsub() for i in range(3)]
    for s in subscribers:
        s.subscribe(channel)
        want(s.get_message(timeout=5)["type"], "subscribe", "the confirmation")
    connect(2).publish(channel, "hello")
    for s in subscribers:
        want(s.get_message(timeout=5)["data"], "hello", "the message")


check(LIBRARY, "Lock: six callers on three nodes hold it one at a time", one_holder)
check(LIBRARY, "Lock: extend and reacquire; a lock that is over is not released", extended)
check(LIBRARY, "a counter raised under WATCH on three nodes ends exact", watched_counter)
check(LIBRARY, "BLPOP on three nodes takes each element once", blocking_pops)
check(LIBRARY, "a message reaches subscribers on all nodes", messages)
