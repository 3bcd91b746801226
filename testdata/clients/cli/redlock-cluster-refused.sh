# Redlock over the three nodes of one cluster: they are one server, so the first
# SET NX is granted and the second and third are not. There is no quorum.
. "$(dirname "$0")/lib.sh"

lock=${P}lock
want "$(node 0 SET "$lock" mine NX PX 20000)" OK "the first SET NX"
want "$(node 1 SET "$lock" mine NX PX 20000)" '(nil)' "the second SET NX"
want "$(node 2 SET "$lock" mine NX PX 20000)" '(nil)' "the third SET NX"
freed=
for i in 2 1 0; do freed="$freed$(script $i lock_release "$lock" , mine) "; done
want "$freed" '(integer) 1 (integer) 0 (integer) 0 ' "the releases on all nodes"
want "$(node 1 EXISTS "$lock")" '(integer) 0' "EXISTS of the lock afterwards"
