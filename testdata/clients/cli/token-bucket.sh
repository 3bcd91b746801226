# A token bucket in Redisson's shape: its assert() errors, no more permits than
# the rate to callers at once, and all of them again after the interval.
. "$(dirname "$0")/lib.sh"

now_ms=$(date +%s)000
# take I PERMITS NOW_MS ID
take() {
  script "$1" bucket_take "${P}b" "${P}b:left" "${P}b:given" "${P}b:left:cli" "${P}b:given:cli" , "$2" "$3" "$4"
}
says=' script: [0-9a-f]{40}, on @user_script:[0-9]+\.$'
matches "$(take 0 1 "$now_ms" none)" "^\(error\) ERR user_script:[0-9]+: the bucket has no rate yet$says" "a bucket without a rate"
want "$(script 0 bucket_set_rate "${P}b" , 7 60000 0)" '(integer) 1' "setting the rate"
want "$(script 1 bucket_set_rate "${P}b" , 9 60000 0)" '(integer) 0' "setting the rate again"
matches "$(take 1 8 "$now_ms" much)" "^\(error\) ERR user_script:[0-9]+: more permits wanted than the rate allows$says" "asking for too much"

caller() { for j in 1 2 3; do take $(($1 + j)) 1 "$now_ms" "$1:$j" >>"$TMP/took$1"; done; }
pids=
for i in 0 1 2 3 4; do
  rm -f "$TMP/took$i"
  caller $i &
  pids="$pids $!"
done
all_ended $pids
want "$(cat "$TMP"/took? | sort | uniq -c | sed 's/^ *//' | tr '\n' ' ')" '8 (integer) 60000 7 (nil) ' "what 15 callers were told"
want "$(node 2 GET "${P}b:left")" '"0"' "permits left"
want "$(take 2 7 $((now_ms + 60000)) all)" '(nil)' "all permits after the interval"
