"""python3-rq: jobs run once, fail, and depend on each other."""

import logging
import sys

sys.dont_write_bytecode = True

import redis
import rq
from checks import check, node, unique, want
from jobs import count, fail

LIBRARY = "python3-rq"
logging.disable(logging.CRITICAL)


def connect(i):
    host, port = node(i)
    return redis.Redis(host=host, port=port)


def work(i, queue):
    # In this process: what is to be seen is the queue, not the forking.
    rq.SimpleWorker([rq.Queue(queue, connection=connect(i))], connection=connect(i)).work(burst=True, logging_level="CRITICAL")


def once():
    name, key = unique("queue"), unique("counts")
    for n in range(30):
        rq.Queue(name, connection=connect(n)).enqueue(count, node(n), key, n)
    work(0, name)
    counts = {int(k): int(v) for k, v in connect(1).hgetall(key).items()}
    want(counts, {n: 1 for n in range(30)}, "runs of each job")


def dependent():
    name, key = unique("queue"), unique("counts")
    queue = rq.Queue(name, connection=connect(1))
    first = queue.enqueue(count, node(0), key, 1)
    second = queue.enqueue(count, node(0), key, 2, depends_on=first)
    third = queue.enqueue(fail)
    want(second.get_status(), "deferred", "the dependent job before")
    work(2, name)
    want([j.get_status(refresh=True) for j in (first, second, third)], ["finished", "finished", "failed"], "the jobs after")
    want(third.id in rq.registry.FailedJobRegistry(name, connection=connect(0)), True, "the failed job in its registry")


check(LIBRARY, "30 jobs put in on three nodes: each runs once", once)
check(LIBRARY, "a job that depends on another waits for it; one that fails is registered", dependent)
