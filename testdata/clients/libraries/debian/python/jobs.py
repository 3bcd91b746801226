"""The jobs of use_rq.py, which workers import by name."""

import redis


def count(address, key, n):
    """A job: counts that n was done."""
    host, port = address
    return redis.Redis(host=host, port=port).hincrby(key, str(n), 1)


def fail():
    """A job that does not succeed."""
    raise ValueError("as it should")
