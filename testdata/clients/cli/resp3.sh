# RESP3 by redis-cli -3: maps, doubles, nulls and the reply of HELLO have their
# own types, also out of scripts; by -2 the same replies are RESP2's.
. "$(dirname "$0")/lib.sh"

hash=${P}hash
zset=${P}zset
want "$(node 0 -3 HSET "$hash" owner 1)" '(integer) 1' "HSET"
want "$(node 1 -3 HGETALL "$hash")" '1# "owner" => "1"' "HGETALL in RESP3"
want "$(node 1 -2 HGETALL "$hash" | tr '\n' ' ')" '1) "owner" 2) "1" ' "HGETALL in RESP2"
want "$(node 2 -3 ZADD "$zset" 1.5 call)" '(integer) 1' "ZADD"
want "$(node 0 -3 ZSCORE "$zset" call)" '(double) 1.5' "ZSCORE in RESP3"
want "$(node 0 ZSCORE "$zset" call)" '"1.5"' "ZSCORE in RESP2"
want "$(node 1 -3 ZRANGE "$zset" 0 -1 WITHSCORES)" '1) 1) "call"
   2) (double) 1.5' "ZRANGE WITHSCORES in RESP3"
want "$(node 2 -3 GET "${P}none")" '(nil)' "GET of nothing in RESP3"
want "$(node 2 -3 SET "${P}lock" mine NX PX 5000)" OK "SET NX PX in RESP3"
want "$(node 0 -3 SET "${P}lock" other NX PX 5000)" '(nil)' "SET NX PX of a held lock in RESP3"
matches "$(node 1 -3 HELLO 3)" '^[0-9]# "proto" => \(integer\) 3$' "HELLO 3"
want "$(node 0 -3 EVAL "redis.setresp(3); return redis.call('HGETALL', KEYS[1])" 1 "$hash")" '1# "owner" => "1"' "a map from a script"
want "$(node 1 -3 EVAL "return {double = 2.5}" 0)" '(double) 2.5' "a double from a script"
want "$(node 2 -3 EVAL "redis.setresp(3); return true" 0)" '(true)' "true from a script"
want "$(node 2 EVAL "return true" 0)" '(integer) 1' "true from a script in RESP2"
