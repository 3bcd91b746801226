"""python3-limits: fixed and moving windows."""

import sys

sys.dont_write_bytecode = True

from checks import check, node, together, unique, want
from limits import parse
from limits.storage import storage_from_string
from limits.strategies import FixedWindowElasticExpiryRateLimiter, FixedWindowRateLimiter, MovingWindowRateLimiter

LIBRARY = "python3-limits"


def exact(strategy):
    user, item = unique("user"), parse("10 per hour")

    # A limiter refers to its storage weakly: they have to be kept.
    storages = [storage_from_string("redis://{}:{}".format(*node(i))) for i in range(40)]
    limiters = [strategy(s) for s in storages]
    want(sum(together(40, lambda i: limiters[i].hit(item, user))), 10, "requests that passed")


for strategy in (FixedWindowRateLimiter, FixedWindowElasticExpiryRateLimiter, MovingWindowRateLimiter):
    check(LIBRARY, f"{strategy.__name__}: of 40 requests at once on three nodes exactly 10 pass", lambda strategy=strategy: exact(strategy))
