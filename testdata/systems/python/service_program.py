"""Repeats one round of checks: service_program.py haproxy|exporter|nchan|rspamd.

Prints `ok`, `failed WHY` (no service) or `wrong WHAT` (a broken promise) for each.
"""
import concurrent.futures
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import redis

ADDRS = os.environ["COORDD_ADDRS"].split(",")
DIR = tempfile.mkdtemp(prefix="coordd-systems-")


class Wrong(Exception):
    pass


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(program, port):
    """Starts a program that ends with this one's group, and waits for its port."""
    child = subprocess.Popen(program, stdout=sys.stderr)
    for _ in range(300):
        if child.poll() is not None:
            raise RuntimeError(f"{program[0]} ended with {child.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"{program[0]} does not listen")


def write(name, text):
    path = os.path.join(DIR, name)
    with open(path, "w") as f:
        f.write(text)
    return path


def haproxy():
    """One port leads to the leader, one to any node."""
    leader, nodes = free_port(), free_port()
    servers = "\n".join(f"  server n{i} {a} check" for i, a in enumerate(ADDRS))
    start(["haproxy", "-db", "-f", write("haproxy.cfg", f"""
global
  maxconn 100
defaults
  mode tcp
  timeout connect 1s
  timeout client 1m
  timeout server 1m
  default-server inter 200ms fall 1 rise 1 on-marked-down shutdown-sessions
listen leader
  bind 127.0.0.1:{leader}
  option tcp-check
  tcp-check connect
  tcp-check send PING\\r\\n
  tcp-check expect string +PONG
  tcp-check send INFO\\ replication\\r\\n
  tcp-check expect string role:master
  tcp-check send QUIT\\r\\n
  tcp-check expect string +OK
{servers}
listen nodes
  bind 127.0.0.1:{nodes}
  balance roundrobin
  option redis-check
{servers}
""")], leader)
    time.sleep(1)  # until every server is checked
    seen, unknown = 0, 0

    def check(_):
        nonlocal seen, unknown
        connect = lambda port: redis.Redis(
            port=port, single_connection_client=True, socket_timeout=5,
            retry_on_error=[], decode_responses=True)
        with connect(leader) as r:
            role = r.execute_command("ROLE")[0]
            if role != "master":
                raise RuntimeError(f"the leader's port leads to a {role}")
            unknown += 1
            count = r.incr("count")
        if not seen < count <= seen + unknown:
            raise Wrong(f"the count is {count} after {seen}")
        seen, unknown = count, 0
        with connect(nodes) as r:
            got = int(r.get("count"))
        if got != seen:
            raise Wrong(f"a node says {got}, the count is {seen}")

    return check


def exporter():
    """One exporter asks every node."""
    port = free_port()
    start(["prometheus-redis-exporter", "-redis.addr", "",
           "-web.listen-address", f"127.0.0.1:{port}"], port)
    needed = ("redis_keyspace_hits_total", "redis_keyspace_misses_total",
              "redis_uptime_in_seconds", "redis_connected_clients", "redis_memory_used_bytes",
              "redis_commands_processed_total", "redis_connections_received_total",
              "redis_expired_keys_total", "redis_evicted_keys_total")
    host, leader_port = ADDRS[0].split(":")
    client = redis.Redis(host, int(leader_port), socket_timeout=5)

    def scrape(addr):
        url = f"http://127.0.0.1:{port}/scrape?target=redis://{addr}"
        with urllib.request.urlopen(url, timeout=5) as reply:
            lines = reply.read().decode().splitlines()
        return dict(line.rsplit(" ", 1) for line in lines if line and line[0] != "#")

    def check(n):
        client.set(f"key-{n}", "")
        keys = client.dbsize()
        masters = 0
        for addr in ADDRS:
            got = scrape(addr)
            if got.get("redis_up") != "1":
                raise RuntimeError(f"{addr} is not up")
            missing = [name for name in needed if name not in got]
            if missing:
                raise Wrong(f"{addr} lacks {missing}")
            if any('role="master"' in name for name in got if name.startswith("redis_instance_info")):
                masters += 1
                counted = float(got.get('redis_db_keys{db="db0"}', 0))
                if counted < keys:
                    raise Wrong(f"{addr} leads and counts {counted} of {keys} keys")
        if masters != 1:
            raise RuntimeError(f"{masters} nodes lead")

    return check


def nchan():
    """Two nginx on two nodes, which count the subscribers of both."""
    ports = free_port(), free_port()
    for i, port in enumerate(ports):
        home = os.path.join(DIR, str(i))
        os.mkdir(home)
        temp = " ".join(f"{kind}_temp_path {home}/{kind};" for kind in (
            "client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        start(["nginx", "-e", "stderr", "-p", home, "-c", write(f"{i}.conf", f"""
load_module /usr/lib/nginx/modules/ngx_nchan_module.so;
daemon off; pid {home}/pid; error_log stderr error;
{"user root;" if os.geteuid() == 0 else ""}
events {{ worker_connections 256; }}
http {{
  access_log off; {temp}
  upstream nodes {{
    nchan_redis_server redis://{ADDRS[i]};
    nchan_redis_accurate_subscriber_count on;
  }}
  server {{
    listen 127.0.0.1:{port};
    location ~ ^/hear/(.*)$ {{
      nchan_subscriber longpoll; nchan_channel_id $1; nchan_redis_pass nodes;
    }}
    location ~ ^/tell/(.*)$ {{ nchan_publisher; nchan_channel_id $1; nchan_redis_pass nodes; }}
  }}
}}
""")], port)

    def ask(path, port, body=None):
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}{path}", body, {"Accept": "text/json"})
        with urllib.request.urlopen(request, timeout=5) as reply:
            return reply.read()

    def subscribers(n):
        try:
            return json.loads(ask(f"/tell/{n}", ports[1]))["subscribers"]
        except urllib.error.HTTPError as err:
            if err.code == 404:  # nobody has subscribed yet
                return 0
            raise

    def check(n):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            heard = [pool.submit(ask, f"/hear/{n}", port) for port in ports]
            limit = time.time() + 4
            while (count := subscribers(n)) < 2:
                if time.time() > limit:
                    raise RuntimeError(f"{count} of 2 subscribers after 4 s")
                time.sleep(0.01)
            time.sleep(0.5)  # until then nchan says 0, on Redis too
            told = json.loads(ask(f"/tell/{n}", ports[1], b"hello"))["subscribers"]
            if told < 2:  # a server is not connected again yet
                raise RuntimeError(f"a message was told to {told} of 2")
            if told > 2:
                raise Wrong(f"a message was told to {told} of 2")
            for reply in heard:
                if reply.result() != b"hello":
                    raise Wrong(f"a subscriber heard {reply.result()}")

    return check


def rspamd():
    """One Rspamd with a limit of three messages of a user."""
    port, limit = free_port(), 3
    as_user = ["-u", "root", "-g", "root"] if os.geteuid() == 0 else []
    start(["rspamd", "-f", *as_user, "-c", write("rspamd.conf", f"""
lua = "/usr/share/rspamd/rules/rspamd.lua";
options {{
  pidfile = "{DIR}/pid"; tempdir = "{DIR}"; control_socket = "{DIR}/control"; filters = [];
  url_tld = "{write("domains", "com" + chr(10))}";
  dns {{ nameserver = ["127.0.0.1:1"]; timeout = 0.1s; retransmits = 1; }}
}}
logging {{ type = "console"; level = "error"; }}
worker "normal" {{ bind_socket = "127.0.0.1:{port}"; count = 1; }}
modules {{ path = "/usr/share/rspamd/plugins/ratelimit.lua"; }}
redis {{ servers = "{",".join(ADDRS)}"; timeout = 2s; }}
ratelimit {{ rates {{ user = {{ bucket = [ {{ burst = {limit}; rate = "1 / 1d"; }} ] }} }} }}
""")], port)

    def passes(user):
        message = urllib.request.Request(
            f"http://127.0.0.1:{port}/checkv2", b"From: a@b.com\nTo: x@y.com\n\nhello\n",
            {"User": user, "From": "a@b.com", "Rcpt": "x@y.com", "IP": "192.0.2.1"})
        with urllib.request.urlopen(message, timeout=20) as reply:
            return json.load(reply)["action"] != "soft reject"

    def check(n):
        for i in range(limit):
            if not passes(f"user-{n}"):
                raise Wrong(f"message {i + 1} of {limit} was refused")
        if passes(f"user-{n}"):  # without a reply from the limiter Rspamd lets messages pass
            raise RuntimeError(f"more than {limit} messages passed")

    return check


def main():
    check = {"haproxy": haproxy, "exporter": exporter, "nchan": nchan, "rspamd": rspamd}[sys.argv[1]]()
    n = 0
    while True:
        n += 1
        try:
            check(n)
            print("ok", flush=True)
        except Wrong as err:
            print("wrong", err, flush=True)
        except Exception as err:  # of any library on the way
            print("failed", repr(err), flush=True)
        time.sleep(0.05)


main()
