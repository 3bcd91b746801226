# A scheduled job that must run once: at each tick five workers start together
# and SET NX with a TTL decides; one that comes late finds it done.
. "$(dirname "$0")/lib.sh"

runs=${P}runs
worker() { # I TICK
  reply=$(node "$1" SET "${P}tick:$2" "worker $1" NX EX 60)
  [ "$reply" = OK ] || return 0
  echo "$1" >>"$TMP/ran$2"
  raise "$1" "$runs" # the job: safe without a lock if it runs once
}
for tick in 1 2 3 4; do
  : >"$TMP/ran$tick"
  pids=
  for i in 0 1 2 3 4; do
    worker $i $tick &
    pids="$pids $!"
  done
  all_ended $pids
  want "$(wc -l <"$TMP/ran$tick" | tr -d ' ')" 1 "workers that ran the job of tick $tick"
  for i in 0 1 2; do
    want "$(value $i "$runs")" $tick "runs after tick $tick, on node $i"
    want "$(node $i SET "${P}tick:$tick" late NX EX 60)" '(nil)' "a late worker on node $i"
  done
done
