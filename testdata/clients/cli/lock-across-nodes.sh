# A lock taken on one node, refused on a second, not given to a wrong owner,
# released by its owner's script through the third; then four callers raise a
# counter non-atomically under it.
. "$(dirname "$0")/lib.sh"

lock=${P}lock
counter=${P}counter
want "$(node 0 SET "$lock" mine NX PX 30000)" OK "SET NX PX of a free lock"
for i in 0 1 2; do
  want "$(node $i SET "$lock" other NX PX 30000)" '(nil)' "SET NX PX of a held lock on node $i"
  want "$(node $i GET "$lock")" '"mine"' "the holder on node $i"
  want "$(script $i lock_release "$lock" , other)" '(integer) 0' "a wrong owner's release on node $i"
  left_ms=$(node $i --raw PTTL "$lock")
  [ "$left_ms" -gt 20000 ] && [ "$left_ms" -le 30000 ] || fail "node $i says the lease of 30 s has $left_ms ms left"
done
want "$(script 2 lock_release "$lock" , mine)" '(integer) 1' "the owner's release"
want "$(script 1 lock_release "$lock" , mine)" '(integer) 0' "a second release"
want "$(node 0 EXISTS "$lock")" '(integer) 0' "EXISTS of a released lock"

caller() {
  for round in 1 2 3; do
    take_lock "$1" "$lock" "caller $1 $round"
    raise "$1" "$counter"
    want "$(script "$1" lock_release "$lock" , "caller $1 $round")" '(integer) 1' "the release of a held lock"
  done
}
pids=
for i in 0 1 2 3; do
  caller $i &
  pids="$pids $!"
done
all_ended $pids
for i in 0 1 2; do want "$(value $i "$counter")" 12 "the counter on node $i"; done
