#!/bin/sh
# Runs the redis-cli scenarios: sh run.sh [scenario ...]
# COORDD_ADDRS names the nodes of one cluster, comma-separated (fewer than three
# are used in turn). Prints a line a scenario; exits 1 if one failed, 2 for wrong usage.

HERE=$(cd "$(dirname "$0")" && pwd)
if [ -z "$COORDD_ADDRS" ]; then
  echo "COORDD_ADDRS must name the nodes, as in 127.0.0.1:6379,127.0.0.1:6380,127.0.0.1:6381" >&2
  exit 2
fi
LUA=$HERE/../lua
TMP=$(mktemp -d) || exit 2
trap 'rm -rf "$TMP"' EXIT
trap 'exit 130' INT TERM
old_ifs=$IFS
IFS=,
set -f
wanted=$*
# shellcheck disable=SC2086 # the commas are to split
set -- $COORDD_ADDRS
IFS=$old_ifs
set +f
A0=$1 A1=${2:-$1} A2=${3:-$1}
RUN_ID=$(od -An -N8 -tx1 /dev/urandom | tr -d ' \n')
export LUA TMP A0 A1 A2 P

. "$HERE/lib.sh"

# wanted holds the names of the command line with commas between.
chosen() {
  [ -z "$wanted" ] && return 0
  case ",$wanted," in *",$1,"*) return 0 ;; esac
  return 1
}

status=0
ran=0
for name in lock-across-nodes watchdog window-one-shot window-multi reentrant-lock token-bucket redlock-cluster-refused scheduled-job stock resp3; do
  chosen "$name" || continue
  ran=$((ran + 1))
  P=scn:cli:$RUN_ID:$name:
  if timeout 15 sh "$HERE/$name.sh" >"$TMP/out" 2>"$TMP/err"; then
    echo "ok $name"
  else
    code=$?
    [ $code != 124 ] || echo "not done after 15 s" >>"$TMP/err"
    echo "FAIL $name: $(tr '\n' ';' <"$TMP/err" | cut -c1-400)"
    status=1
  fi
  # Every scenario's keys begin with its prefix.
  node 0 --raw --scan --pattern "$P*" >"$TMP/keys"
  while read -r key; do node 0 DEL "$key" </dev/null >/dev/null; done <"$TMP/keys"
done
if [ $ran = 0 ]; then
  echo "no scenario of that name" >&2
  exit 2
fi
exit $status
