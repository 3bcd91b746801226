# A reentrant lock in Redisson's shape: two entries need two exits, a wrong owner
# is told nil, and a waiter subscribed on another node is woken by the last exit.
. "$(dirname "$0")/lib.sh"

lock=${P}lock
channel=${P}freed
enter() { script "$1" reentrant_lock "$lock" , 30000 "$2"; }
# leave I OWNER REQUEST
leave() { script "$1" reentrant_unlock "$lock" "$channel" "${P}latch:$3" , 0 30000 "$2" PUBLISH 5000; }

want "$(enter 0 mine)" '(nil)' "the owner's first entry"
want "$(enter 1 mine)" '(nil)' "the owner's second entry, on another node"
want "$(node 2 HGETALL "$lock" | tr '\n' ' ')" '1) "mine" 2) "2" ' "the lock's hash"
matches "$(enter 2 other)" '^\(integer\) (30000|[12][0-9]{4})$' "what a second owner is told"
want "$(leave 2 other a)" '(nil)' "a wrong owner's unlock"
want "$(leave 0 mine b)" '(integer) 0' "the inner unlock"
want "$(leave 1 mine b)" '(integer) 0' "the same request again"

# The waiter listens on node 1; the exit goes to node 2.
timeout 10 redis-cli -h "${A1%:*}" -p "${A1##*:}" --no-raw SUBSCRIBE "$channel" >"$TMP/heard" &
listener=$!
trap 'kill $listener 2>/dev/null' EXIT
until_says "$TMP/heard" '^1\) "subscribe"$' || fail "SUBSCRIBE was not acknowledged"
matches "$(enter 1 other)" '^\(integer\) [1-9]' "a waiter's try after it subscribed"
want "$(leave 2 mine c)" '(integer) 1' "the last unlock"
until_says "$TMP/heard" '^1\) "message"$' || fail "the waiter on another node was not woken within 5 s"
until_says "$TMP/heard" '^3\) "0"$' || fail "the message is not what was published: $(cat "$TMP/heard")"
want "$(enter 1 other)" '(nil)' "the woken owner's entry"
want "$(leave 1 other d)" '(integer) 1' "the woken owner's unlock"
want "$(node 0 EXISTS "$lock")" '(integer) 0' "EXISTS of the lock afterwards"
