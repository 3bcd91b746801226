# The script that takes a lock, trims, adds, counts, sets the expiry and unlocks:
# nil while another holds the lock; callers at once are each counted once.
. "$(dirname "$0")/lib.sh"

lock=${P}lock
window=${P}window
now_ms=$(date +%s)000
# call I NOW_MS MEMBER
call() { script "$1" window_oneshot "$lock" "$window" , "token $3" 5000 "$2" 60000 "$3"; }

want "$(node 0 SET "$lock" other NX PX 30000)" OK "SET NX PX of a free lock"
for i in 0 1 2; do want "$(call $i "$now_ms" "early $i")" '(nil)' "a call on node $i while another holds the lock"; done
want "$(node 1 ZCARD "$window")" '(integer) 0' "entries of calls that got no lock"
want "$(node 2 DEL "$lock")" '(integer) 1' "DEL of the lock"

caller() { for j in 1 2 3; do call $(($1 + j)) "$now_ms" "$1:$j" >>"$TMP/counts$1"; done; }
pids=
for i in 0 1 2 3 4; do
  rm -f "$TMP/counts$i"
  caller $i &
  pids="$pids $!"
done
all_ended $pids
counts=$(cat "$TMP"/counts? | sed 's/(integer) //' | sort -n | tr '\n' ' ')
want "$counts" '1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 ' "the counts"
want "$(node 1 EXISTS "$lock")" '(integer) 0' "EXISTS of the lock afterwards"
want "$(call 2 $((now_ms + 120000)) late)" '(integer) 1' "the count two windows later"
want "$(node 0 ZRANGE "$window" 0 -1)" '1) "late"' "what is in the window then"

# A script loaded through one node runs by its hash through the others.
hash=$(node 0 --raw SCRIPT LOAD "return '$P' .. KEYS[1]")
for i in 0 1 2; do
  want "$(node $i EVALSHA "$hash" 1 x)" "\"${P}x\"" "EVALSHA on node $i of a script loaded on node 0"
  want "$(node $i EVALSHA "f$hash" 0)" '(error) NOSCRIPT No matching script. Please use EVAL.' "EVALSHA of an unknown script on node $i"
done
