# What the redis-cli scenarios stand on, read by each of them: how to reach the
# nodes, how to fail, and waiting as users of locks wait.
# From run.sh: LUA (directory of the scripts), P (this run's key prefix),
# TMP (a directory that is removed), A0 A1 A2 (addresses of the nodes).

# node I COMMAND...: one command on node I, with redis-cli's typed output.
node() {
  case $(($1 % 3)) in
    0) address=$A0 ;;
    1) address=$A1 ;;
    *) address=$A2 ;;
  esac
  shift
  redis-cli -h "${address%:*}" -p "${address##*:}" --no-raw "$@"
}

# value I KEY: the bare value of a string key.
value() { node "$1" --raw GET "$2"; }

# script I NAME KEYS... , ARGS...: a shared script, as redis-cli --eval sends it.
script() {
  script_node=$1
  script_name=$2
  shift 2
  node "$script_node" --eval "$LUA/$script_name.lua" "$@"
}

fail() {
  echo "$*" >&2
  exit 1
}

# want GOT WANTED WHAT...
want() {
  got=$1
  wanted=$2
  shift 2
  [ "$got" = "$wanted" ] || fail "$*: got '$got', want '$wanted'"
}

# matches TEXT PATTERN WHAT...: an extended regular expression must match.
matches() {
  text=$1
  pattern=$2
  shift 2
  printf '%s\n' "$text" | grep -qE "$pattern" || fail "$*: got '$text', want $pattern"
}

# back_off ATTEMPT: exponentially longer up to 64 ms, with full jitter.
back_off() {
  top=$((4 << ($1 < 4 ? $1 : 4)))
  sleep "$(printf '0.%03d' $((1 + $(od -An -N1 -tu1 /dev/urandom) % top)))"
}

# until_says FILE PATTERN: waits until a line of the file matches, up to 5 s.
until_says() {
  tries=0
  until grep -qE "$2" "$1" 2>/dev/null; do
    tries=$((tries + 1))
    [ $tries -lt 250 ] || return 1
    sleep 0.02
  done
}

# all_ended PID...: waits for background callers; fails if one of them failed.
all_ended() {
  ended_badly=0
  for pid in "$@"; do wait "$pid" || ended_badly=1; done
  [ $ended_badly = 0 ] || exit 1
}

# take_lock I KEY TOKEN: SET NX PX until it is granted.
take_lock() {
  attempt=0
  while :; do
    reply=$(node "$1" SET "$2" "$3" NX PX 10000)
    [ "$reply" != OK ] || return 0
    want "$reply" '(nil)' "SET NX of a held lock"
    back_off $attempt
    attempt=$((attempt + 1))
  done
}

# raise I KEY: adds one in the way that loses updates unless a lock keeps others out.
raise() {
  n=$(value "$1" "$2")
  node "$1" SET "$2" $((${n:-0} + 1)) >/dev/null
}
