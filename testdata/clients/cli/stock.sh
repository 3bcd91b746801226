# A stock that must not go below zero: buyers want more than there is, and
# exactly what there is gets sold.
. "$(dirname "$0")/lib.sh"

stock=${P}stock
sales=${P}sales
want "$(node 0 SET "$stock" 11)" OK "filling the stock"
buyer() { # buys until it is refused
  j=0
  while :; do
    left=$(script $(($1 + j)) stock_take "$stock" "$sales" , $((1 + $1 % 2)) "$1:$j")
    [ "$left" != '(integer) -1' ] || return 0
    matches "$left" '^\(integer\) [0-9]+$' "a sale's answer"
    j=$((j + 1))
  done
}
pids=
for i in 0 1 2 3 4; do
  buyer $i &
  pids="$pids $!"
done
all_ended $pids
for i in 0 1 2; do want "$(value $i "$stock")" 0 "the stock on node $i"; done
want "$(node 1 --raw HVALS "$sales" | awk '{ n += $1 } END { print n }')" 11 "pieces written down as sold"
