"""The job, in a module of its own: rq names it by its module."""
import time


def say(word, n):
    print(word, n, flush=True)


def run(n):
    say("ran", n)
    time.sleep(0.02)
