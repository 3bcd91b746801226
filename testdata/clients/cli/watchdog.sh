# A lease that is renewed at each third of it stays with its holder; when the
# renewals end, so does the lease, and the late holder cannot renew any more.
. "$(dirname "$0")/lib.sh"

lock=${P}lock
want "$(node 0 SET "$lock" first NX PX 1500)" OK "SET NX PX of a free lock"
for i in 1 2 3 4; do # to past the first lease
  sleep 0.5
  want "$(node $i SET "$lock" second NX PX 1500)" '(nil)' "SET NX of a renewed lock"
  want "$(script $i lock_renew "$lock" , first 1500)" '(integer) 1' "renewal $i"
done
take_lock 0 "$lock" second # the watchdog is dead now; run.sh bounds the wait
want "$(script 2 lock_renew "$lock" , first 600000)" '(integer) 0' "the renewal of a lost lock"
want "$(node 1 GET "$lock")" '"second"' "the holder"
want "$(script 1 lock_release "$lock" , second)" '(integer) 1' "the second owner's release"
