"""python3-redis: its Lock, WATCH, blocking pops, and subscriptions."""

import sys
import time

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


def own_locks():
    key, room, tokens = unique("lock"), Room(), []

    def caller(i):
        client = connect(i)  # its time-out is as long as WAIT
        for _ in range(4):
            me = unique("owner")
            token = client.execute_command("LOCK.ACQUIRE", key, me, "PX", 10000, "WAIT", 29000, "ID", me)[0]
            tokens.append(token)
            room.visit()
            want(client.execute_command("LOCK.RELEASE", key, me, "TOKEN", token), 1, "the release")

    together(6, caller)
    want((room.most, room.visits), (1, 24), "most at a time, visits")
    want(tokens, sorted(set(tokens) - {0}), "the tokens")


def own_leases():
    lock, key = unique("lock"), unique("key")
    client = connect(0)
    lease = client.execute_command("LEASE", "GRANT", 1000, "CONNECTION")
    first = client.execute_command("LOCK.ACQUIRE", lock, "a", "LEASE", lease)[0]
    client.execute_command("SET", key, "v", "LEASE", lease)

    def caller(i):
        if i == 1:
            return connect(1).execute_command("LOCK.ACQUIRE", lock, "b", "PX", 10000, "WAIT", 20000)[0]
        for _ in range(15):  # longer than the lease
            time.sleep(0.1)
            want(client.execute_command("LEASE", "KEEPALIVE", lease), [1000], "what is left")
        want((client.get(lock), client.exists(key)), ("a", 1), "what lives")
        want(client.execute_command("LEASE", "REVOKE", lease), 1, "the end")
        return first

    tokens = together(2, caller)
    want(0 < tokens[0] < tokens[1], True, f"the tokens {tokens} rise")
    want(client.exists(key), 0, "what lives after the end")


def own_repeats():
    lock, counter, request = unique("lock"), unique("counter"), unique("id")
    replies = {
        str((
            connect(i).execute_command("LOCK.ACQUIRE", lock, "me", "PX", 10000, "WAIT", 1000, "ID", request + ":l"),
            connect(i).execute_command("INCREX", counter, "EX", 60, "ID", request + ":c"),
        ))
        for i in range(3)
    }
    want(len(replies), 1, "different replies")
    want(connect(0).get(counter), "1", "the counter")


def own_window():
    key = unique("window")
    allowed = together(40, lambda i: connect(i).execute_command("WINDOW.HIT", key, 10, "PX", 60000)[0])
    want(sum(allowed), 10, "allowed")


check(LIBRARY, "Lock: six callers on three nodes hold it one at a time", one_holder)
check(LIBRARY, "Lock: extend and reacquire; a lock that is over is not released", extended)
check(LIBRARY, "a counter raised under WATCH on three nodes ends exact", watched_counter)
check(LIBRARY, "BLPOP on three nodes takes each element once", blocking_pops)
check(LIBRARY, "a message reaches subscribers on all nodes", messages)
check(LIBRARY, "LOCK.ACQUIRE with WAIT: six callers on three nodes hold it one at a time, tokens rise", own_locks)
check(LIBRARY, "LEASE: a lock and a key live while it is renewed; its end serves who waits", own_leases)
check(LIBRARY, "ID: what is sent again through another node has the first reply", own_repeats)
check(LIBRARY, "WINDOW.HIT: of 40 calls at once on three nodes exactly 10 are allowed", own_window)
