# MULTI from standard input: trim, add, count, expire and unlock in one step; a
# WATCH that another node's write breaks; a queue with an error in it.
. "$(dirname "$0")/lib.sh"

lock=${P}lock
window=${P}window
now_ms=$(date +%s)000
count() { # I MEMBER NOW_MS
  take_lock "$1" "$lock" "$2"
  printf '%s\n' MULTI "ZREMRANGEBYSCORE $window -inf $(($3 - 60000))" "ZADD $window $3 $2" \
    "ZCARD $window" "PEXPIRE $window 60000" "DEL $lock" EXEC | node "$1" | tail -n 5 >"$TMP/exec$2"
  sed -n 's/^3) (integer) //p' "$TMP/exec$2" >>"$TMP/multi$1"
}
caller() { for j in 1 2 3; do count "$1" "c$1$j" "$now_ms"; done; }
pids=
for i in 0 1 2 3 4; do
  rm -f "$TMP/multi$i"
  caller $i &
  pids="$pids $!"
done
all_ended $pids
counts=$(cat "$TMP"/multi? | sort -n | tr '\n' ' ')
want "$counts" '1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 ' "the counts"
want "$(cat "$TMP/execc43")" "1) (integer) 0
2) (integer) 1
$(sed -n 3p "$TMP/execc43")
4) (integer) 1
5) (integer) 1" "EXEC's reply"
want "$(node 2 EXISTS "$lock")" '(integer) 0' "EXISTS of the lock afterwards"
count 0 late $((now_ms + 60000))
want "$(tr '\n' ' ' <"$TMP/execlate")" '1) (integer) 15 2) (integer) 1 3) (integer) 1 4) (integer) 1 5) (integer) 1 ' "EXEC a window later"

# The watched lock changes hands on another node before EXEC.
want "$(node 0 SET "$lock" first NX PX 30000)" OK "SET NX PX of a free lock"
{
  printf '%s\n' "WATCH $lock" "GET $lock"
  until_says "$TMP/watch" '"first"' || echo "the GET was not answered" >&2
  node 1 SET "$lock" second XX PX 30000 >/dev/null
  printf '%s\n' MULTI "ZADD $window $now_ms stolen" "DEL $lock" EXEC
} | node 0 >"$TMP/watch"
want "$(tail -n 4 "$TMP/watch" | tr '\n' ' ')" 'OK QUEUED QUEUED (nil) ' "EXEC after the watched lock changed hands"
want "$(node 2 GET "$lock")" '"second"' "the holder"
want "$(node 2 ZSCORE "$window" stolen)" '(nil)' "what the aborted MULTI added"

# A command that cannot be queued spoils the whole; one that fails when it runs does not.
want "$(printf '%s\n' MULTI "SET ${P}a 1" "GET" EXEC | node 1 | tail -n 2 | tr '\n' '|')" \
  "(error) ERR wrong number of arguments for 'get' command|(error) EXECABORT Transaction discarded because of previous errors.|" \
  "a queue with a wrong arity"
want "$(node 0 EXISTS "${P}a")" '(integer) 0' "EXISTS after EXECABORT"
want "$(printf '%s\n' MULTI "SET ${P}b 1" "HGET ${P}b f" "INCR ${P}b" EXEC | node 2 | tail -n 3 | tr '\n' '|')" \
  '1) OK|2) (error) WRONGTYPE Operation against a key holding the wrong kind of value|3) (integer) 2|' \
  "a MULTI with a command that fails"
