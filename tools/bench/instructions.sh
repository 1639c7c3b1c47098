#!/bin/sh
# instructions.sh: instructions per pair of a benchmark, loop included, counted by callgrind: a run of N pairs and one of
# 2N, and the difference divided by N. Set-up, start and end of the program cancel out. Repeats give the same to
# the printed digit.
#
#     tools/bazelw build -c opt //tools/vmpool
#     tools/bench/instructions.sh pair
#     tools/bench/instructions.sh churn --seed 2
#
# PAIRS=N chooses N (default 100000), VMPOOL=PROGRAM the program (default bazel-bin/tools/vmpool/vmpool).
set -eu

pairs=${PAIRS:-100000}
program=${VMPOOL:-bazel-bin/tools/vmpool/vmpool}
case $pairs in
  '' | *[!0-9]* | 0*) echo "instructions.sh: PAIRS is '$pairs', and must be a whole number from 1 on" >&2 && exit 2 ;;
esac
[ $# -gt 0 ] || { echo "usage: $0 BENCHMARK [OPTION...]   (vmpool bench --help lists them)" >&2 && exit 2; }
[ -x "$program" ] || { echo "instructions.sh: $program is missing; build it: tools/bazelw build -c opt //tools/vmpool" >&2 && exit 2; }
command -v valgrind >/dev/null || { echo "instructions.sh: valgrind is not installed" >&2 && exit 2; }

# count PAIRS ARGUMENT...: the instructions of one run.
count() {
  n=$1
  shift
  log=$(valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" bench "$@" --pairs "$n" 2>&1 >/dev/null) || {
    printf '%s\n' "$log" >&2
    return 1
  }
  printf '%s\n' "$log" | sed -n 's/^==[0-9]*== Collected : *\([0-9]*\).*/\1/p'
}

once=$(count "$pairs" "$@")
twice=$(count $((2 * pairs)) "$@")
if [ -z "$once" ] || [ -z "$twice" ]; then echo "instructions.sh: callgrind printed no count" >&2 && exit 1; fi
echo "$once $twice $pairs" | awk '{ printf "%.1f instructions per pair (%.0f pairs: %.0f, %.0f pairs: %.0f)\n", ($2 - $1) / $3, $3, $1, 2 * $3, $2 }'
