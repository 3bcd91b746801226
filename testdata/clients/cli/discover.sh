#!/bin/sh
# Writes with redis-cli -c, which follows MOVED, while a test kills leaders; see ../README.md under "Finding the leader".
#   sh discover.sh PREFIX
# COORDD_ADDRS names the nodes. redis-cli is given one node, the one that served it last; when that is gone, the next.
set -u
prefix=$1
stop=$(mktemp) || exit 1
trap 'rm -f "$stop" "$stop.yes"' EXIT
exec 3<&0
(cat <&3 >/dev/null; : >"$stop.yes") &
n=0
nodes=$(echo "$COORDD_ADDRS" | tr , ' ')
while [ ! -e "$stop.yes" ]; do
	for node in $nodes; do
		reply=$(redis-cli -c -h "${node%:*}" -p "${node##*:}" SET "$prefix:$n" "$n" 2>&1)
		if [ "$reply" = OK ]; then
			echo "ack $prefix:$n"
			break
		fi
		echo "err $reply" | tr '\n' ' '
		echo
		nodes="${nodes#"$node" } $node"
	done
	n=$((n + 1))
done
echo end
