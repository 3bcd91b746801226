#!/bin/sh
# redis-cli and redis-benchmark, as people use them.
set -u

address() { echo "$COORDD_ADDRS" | cut -d, -f"$1"; }
cli() { # NODE ARGS…
	node=$(address "$1")
	shift
	redis-cli -h "${node%:*}" -p "${node##*:}" "$@"
}

report() { # LIBRARY CHECK OK ERROR
	printf '{"library": "%s", "version": "%s", "check": "%s", "ok": %s, "error": "%s"}\n' "$1" "${VERSION:-}" "$2" "$3" "$4"
}

want() { # LIBRARY CHECK GOT WANTED
	if [ "$3" = "$4" ]; then
		report "$1" "$2" true ''
	else
		report "$1" "$2" false "got $(echo "$3" | tr '\n"\\' '   '), want $(echo "$4" | tr '\n"\\' '   ')"
	fi
}

key=cli:$$:$(date +%s)
want redis-cli 'a lock taken on one node is refused on another' "$(cli 1 SET "$key" a NX PX 10000) $(cli 2 SET "$key" b NX PX 10000)" 'OK '
want redis-cli 'RESP3: a hash is a map' "$(cli 3 -3 EVAL 'redis.call("HSET", KEYS[1], "f", "v") return redis.call("HGETALL", KEYS[1])' 1 "$key:h" | tr '\n' ' ')" 'f v '
want redis-cli '--eval runs a script from a file' "$(f=$(mktemp) && echo 'return {KEYS[1], ARGV[1]}' >"$f" && cli 2 --eval "$f" k , v | tr '\n' ' '; rm -f "$f")" 'k v '
want redis-cli '--scan and --bigkeys see keys of another node' "$(cli 1 RPUSH "$key:l" a b c >/dev/null; cli 2 --scan --pattern "$key:l")" "$key:l"
want redis-cli '--pipe sends a protocol file and counts the replies' "$(i=0; while [ $i -lt 200 ]; do echo "SET $key:p$i v"; i=$((i + 1)); done | cli 3 --pipe | tail -1)" 'errors: 0, replies: 200'
want redis-cli 'INFO and CLIENT LIST answer' "$(cli 1 INFO server | grep -c '^redis_version:'; cli 1 CLIENT LIST | grep -c 'cmd=client|list')" "$(printf '1\n1')"

node=$(address 2)
for load in '-t set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,spop,zadd,zpopmin,lrange_100,mset' '-P 16 -t set,get' '-c 200 -t incr'; do
	# shellcheck disable=SC2086
	out=$(redis-benchmark -h "${node%:*}" -p "${node##*:}" -n 2000 -q $load 2>&1 | tr '\r' '\n')
	bad=$(echo "$out" | grep -iE 'error|refused|failed' | head -1)
	done_=$(echo "$out" | grep -c 'requests per second, p50')
	if [ -z "$bad" ] && [ "$done_" -gt 0 ]; then
		report redis-benchmark "redis-benchmark $load through one node: every reply is no error" true ''
	else
		report redis-benchmark "redis-benchmark $load through one node: every reply is no error" false "$(echo "${bad:-no result}" | tr '"\\' '  ')"
	fi
done
