"""A producer or a worker of one queue: queue_program.py rq|celery produce|work NAME JOBS.

Prints `put N` for a job that the library took and `ran N` for one that a worker began.
"""
import atexit
import os
import sys
import time

import jobs

LIBRARY, ROLE, NAME, JOBS = sys.argv[1:5]
URL = "redis://" + os.environ["COORDD_ADDR"]


def produce(add):
    """Adds the jobs one by one; add raises if the library did not take one."""
    n = 0
    while n < int(JOBS):
        try:
            add(n)
        except Exception as err:  # of any library on the way
            print(f"{LIBRARY} add: {err}", file=sys.stderr)
            time.sleep(0.1)
            continue
        jobs.say("put", n)
        n += 1
        time.sleep(0.01)


def rq():
    import redis
    from rq import Queue, SimpleWorker
    from rq.job import Job

    connection = redis.Redis.from_url(URL)

    def add(n):
        # A job and its place in the queue are written together.
        if not Job.exists(str(n), connection=connection):
            Queue(NAME, connection=connection).enqueue(jobs.run, n, job_id=str(n))

    if ROLE == "produce":
        return produce(add)
    while True:  # a supervisor starts a worker again that has lost its connection
        try:
            SimpleWorker([NAME], connection=connection).work(logging_level="ERROR")
        except redis.RedisError as err:
            print(f"rq: {err}", file=sys.stderr)
        time.sleep(0.5)


def celery():
    from celery import Celery

    app = Celery(NAME, broker=URL)
    app.conf.update(
        task_default_queue=NAME, task_ignore_result=True, task_acks_late=True,
        worker_prefetch_multiplier=1, worker_redirect_stdouts=False,
        broker_transport_options={"visibility_timeout": 5},
    )
    task = app.task(name="run")(jobs.run)
    if ROLE == "produce":
        return produce(lambda n: task.apply_async((n,), task_id=str(n), retry=False))
    app.worker_main(["worker", "--pool=solo", "--loglevel=ERROR",
                     "--hostname", f"worker-{os.getpid()}"])
    # It ends when a command is answered with an error. A supervisor starts it again.
    atexit._run_exitfuncs()  # kombu gives its message back
    time.sleep(0.5)
    os.execv(sys.executable, [sys.executable, *sys.argv])


{"rq": rq, "celery": celery}[LIBRARY]()
