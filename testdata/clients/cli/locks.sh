#!/bin/sh
# Takes and releases locks over TLS with redis-cli -c, while a test kills nodes and replaces certificates; see ../README.md under "Locks over TLS".
#   sh locks.sh NAME
# COORDD_ADDRS names the nodes. redis-cli is given one node, the one that served it last; when that is gone, the next.
set -u
name=$1
LUA=$(dirname "$0")/../lua
LEASE_MS=30000 # longer than any outage: a lock that ends is lost
export REDISCLI_AUTH="$COORDD_PASSWORD"
stop=$(mktemp) || exit 1
errors=$stop.errors
trap 'rm -f "$stop" "$stop.yes" "$errors"' EXIT
exec 3<&0
(cat <&3 >/dev/null; : >"$stop.yes") &
nodes=$(echo "$COORDD_ADDRS" | tr , ' ')

cli() { # NODE ARGS...: one command
	to=$1
	shift
	redis-cli -e --no-auth-warning -c --tls --cacert "$COORDD_TLS_CA" --cert "$COORDD_TLS_CERT" --key "$COORDD_TLS_KEY" --user "$COORDD_USER" -h "${to%:*}" -p "${to##*:}" "$@"
}

# always ARGS...: repeats a command until it succeeds, and sets reply. A redis-cli that is redirected while its files are replaced complains, connects again and succeeds.
always() {
	while :; do
		for node in $nodes; do
			if reply=$(cli "$node" "$@" 2>"$errors"); then
				return
			fi
			echo "err $reply $(cat "$errors")" | tr '\n' ' '
			echo
			nodes="${nodes#"$node" } $node"
		done
	done
}

token() { od -An -N10 -tx1 /dev/urandom | tr -d ' '; }

# acquire LOCK: waits for it and sets mine to the token in it. A try whose reply was lost may have succeeded, so it looks whose the lock is, and renews its own: the lease runs since that try.
acquire() {
	mine=$(token)
	while :; do
		always SET "$1" "$mine" NX PX $LEASE_MS
		[ "$reply" != OK ] || return
		always GET "$1"
		[ "$reply" != "$mine" ] || { renew "$1" "$mine"; return; }
	done
}

renew() { # LOCK TOKEN: begins its lease again
	always --eval "$LUA/lock_renew.lua" "$1" , "$2" $LEASE_MS
	[ "$reply" = 1 ] || echo "lost $1"
}

# use LOCK: takes it, raises its counter in the way that loses updates unless a lock keeps others out, renews the lease, and releases the lock.
use() {
	acquire "$1"
	always FENCE "$1"
	fence=$reply
	always GET "$1:counter"
	count=$((${reply:-0} + 1))
	always SET "$1:counter" $count
	renew "$1" "$mine"
	echo "held $1 $fence $count"
	always --eval "$LUA/lock_release.lua" "$1" , "$mine"
}

echo "version $(redis-cli --version | cut -d' ' -f2)"
echo "denied $(cli "${nodes%% *}" SET other:1 x 2>&1)"
own=lock:own:$name
acquire "$own"
own_token=$mine
n=0
while [ ! -e "$stop.yes" ]; do
	renew "$own" "$own_token"
	always FENCE "$own"
	echo "kept $reply"
	use lock:shared:$((n % 3))
	n=$((n + 1))
done
echo end
