"""A redis-py client that finds the leader by itself. It uses TLS, and a user, if the environment has them; COORDD_ADDRS names the nodes."""

import os
import sys

from redis.sentinel import Sentinel

sys.dont_write_bytecode = True


def options():
    """How to reach a node. The files are read for each connection, so they may be replaced."""
    o = {"username": os.environ.get("COORDD_USER"), "password": os.environ.get("COORDD_PASSWORD")}
    if "COORDD_TLS_CA" in os.environ:
        o |= {"ssl": True, "ssl_ca_certs": os.environ["COORDD_TLS_CA"], "ssl_certfile": os.environ["COORDD_TLS_CERT"], "ssl_keyfile": os.environ["COORDD_TLS_KEY"]}
    return o


def connect():
    """A client of the leader, which it asks Sentinels for."""
    nodes = [(a.rpartition(":")[0], int(a.rpartition(":")[2])) for a in os.environ["COORDD_ADDRS"].split(",")]
    return Sentinel(nodes, sentinel_kwargs=options(), **options()).master_for("mymaster")
