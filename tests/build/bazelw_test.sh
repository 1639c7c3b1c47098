#!/bin/sh
# bazelw_test.sh: tools/bazelw against machines made of fake commands. PATH holds nothing else but the few real ones that
# the script and its fakes need.
#
# shellcheck disable=SC2016 # the bodies of fakes are expanded by the fakes
set -u

bazelw=$PWD/tools/bazelw
scratch=${TEST_TMPDIR:?run me by bazel test}/machine
failures=0
fail() {
  failures=$((failures + 1))
  printf 'FAILED: %s: %s\n--- out\n%s\n--- err\n%s\n--- log\n%s\n' "$case_name" "$1" "$out" "$err" "$log"
}

# fake NAME BODY: a command of the machine. Every fake logs its call.
fake() {
  printf '#!/bin/sh\nprintf "%%s\\n" "%s $*" >>"%s/log"\n%s\n' "$1" "$scratch" "$2" >"$scratch/bin/$1"
  chmod +x "$scratch/bin/$1"
}

# machine NAME: a fresh machine with nothing installed, whose user is nobody in particular.
machine() {
  case_name=$1
  rm -rf "$scratch"
  mkdir -p "$scratch/bin" "$scratch/src" "$scratch/include/cairo"
  : >"$scratch/log"
  for real in sh env cat mkdir chmod cp; do ln -s "$(command -v "$real")" "$scratch/bin/$real"; done
  fake true ''  # for sudo; the shell's own is no program
  fake id 'echo 1000'
}
with_root() { fake id 'echo 0'; }
with_bazel() { fake "$1" 'echo "ran as given: $*"; exit 5'; }
# As a preprocessor, the compiler finds the header that it is asked for where the machine has it.
preprocessor='IFS= read -r line; header=${line#*<}; [ -e "'$scratch'/include/${header%>*}" ]'
with_compiler() {
  fake gcc "$preprocessor"
  fake g++ ''
}
with_googletest() {
  mkdir -p "$scratch/src/googletest/src"
  : >"$scratch/src/googletest/src/gtest.cc"
}
with_headers() { for header in jansson.h zlib.h cairo/cairo.h curses.h; do : >"$scratch/include/$header"; done; }

# apt-get that puts the fakes of what it is asked for into place.
with_apt() {
  printf '#!/bin/sh\n%s\n' "$preprocessor" >"$scratch/src/gcc"
  chmod +x "$scratch/src/gcc"
  fake apt-get "
    for word in \"\$@\"; do
      case \$word in
        bazel-bootstrap) printf '#!/bin/sh\necho installed bazel \"\$*\"\n' >'$scratch/bin/bazel'; chmod +x '$scratch/bin/bazel' ;;
        gcc) cp '$scratch/src/gcc' '$scratch/bin/gcc' ;;
        g++) printf '#!/bin/sh\n' >'$scratch/bin/g++'; chmod +x '$scratch/bin/g++' ;;
        googletest) mkdir -p '$scratch/src/googletest/src'; : >'$scratch/src/googletest/src/gtest.cc' ;;
        libjansson-dev) : >'$scratch/include/jansson.h' ;;
        zlib1g-dev) : >'$scratch/include/zlib.h' ;;
        libcairo2-dev) : >'$scratch/include/cairo/cairo.h' ;;
        libncurses-dev) : >'$scratch/include/curses.h' ;;
      esac
    done
    echo 'chatter of apt'"
}
with_broken_apt() { fake apt-get 'echo "E: no network" >&2; exit 100'; }
with_sudo() { fake sudo '[ "$1" = -n ] && shift; exec "$@"'; }
with_locked_sudo() { fake sudo 'echo "sudo: a password is required" >&2; exit 1'; }

run() {
  status=0
  env -i PATH="$scratch/bin" GTEST_SRC="$scratch/src" sh "$bazelw" "$@" >"$scratch/out" 2>"$scratch/err" </dev/null || status=$?
  out=$(cat "$scratch/out") err=$(cat "$scratch/err") log=$(cat "$scratch/log")
}
expect_status() { [ "$status" = "$1" ] || fail "exit status $status, not $1"; }
expect_in() { # name text part
  case $2 in *"$3"*) ;; *) fail "$1 lacks '$3'" ;; esac
}
expect_not_in() {
  case $2 in *"$3"*) fail "$1 has '$3'" ;; esac
}

machine 'all present'
with_bazel bazel && with_compiler && with_googletest && with_headers && with_apt && with_sudo
run test //... --config=ci -- a 'b c'
expect_status 5
expect_in out "$out" 'ran as given: test //... --config=ci -- a b c'
expect_not_in log "$log" apt-get
expect_not_in log "$log" sudo
[ -z "$err" ] || fail 'says something although there is nothing to say'

machine 'bazelisk in place of bazel'
with_bazel bazelisk && with_compiler && with_googletest && with_headers && with_apt && with_root
fake bazelisk 'echo "bazelisk $USE_BAZEL_VERSION: $*"'
run build //:vmpool
expect_status 0
expect_in out "$out" 'bazelisk 7.x: build //:vmpool'
expect_not_in log "$log" apt-get

machine 'bazel goes before bazelisk'
with_bazel bazel && with_bazel bazelisk && with_compiler && with_googletest && with_headers
run info
expect_in log "$log" 'bazel info'
expect_not_in log "$log" bazelisk

machine 'nothing present, as root'
with_root && with_apt
run test //...
expect_status 0
[ "$out" = 'installed bazel test //...' ] || fail 'standard output is not that of bazel alone'
expect_in err "$err" 'installing with apt-get: bazel-bootstrap gcc g++ googletest libjansson-dev zlib1g-dev libcairo2-dev libncurses-dev'
expect_in log "$log" 'apt-get update'
expect_in log "$log" 'apt-get install -q -y --no-install-recommends bazel-bootstrap gcc g++ googletest libjansson-dev zlib1g-dev libcairo2-dev libncurses-dev'
expect_not_in log "$log" sudo

machine 'nothing present, with sudo'
with_sudo && with_apt
run test //...
expect_status 0
expect_in out "$out" 'installed bazel test //...'
expect_in err "$err" 'installing with sudo -n apt-get: bazel-bootstrap'
expect_in log "$log" 'sudo -n apt-get update'
expect_in log "$log" 'sudo -n env DEBIAN_FRONTEND=noninteractive apt-get install'

machine 'only libraries missing, as root'
with_root && with_apt && with_bazel bazel && with_compiler
run test //...
expect_status 5
expect_in err "$err" 'installing with apt-get: googletest libjansson-dev zlib1g-dev libcairo2-dev libncurses-dev'

machine 'only headers missing, with sudo'
with_sudo && with_apt && with_bazel bazel && with_compiler && with_googletest
run test //...
expect_status 5
expect_in err "$err" 'apt-get: libjansson-dev'

machine 'nothing present, neither root nor sudo'
with_apt
run test //...
expect_status 2
expect_in err "$err" 'apt-get install bazel-bootstrap gcc g++ googletest libjansson-dev zlib1g-dev libcairo2-dev libncurses-dev'
expect_not_in log "$log" 'apt-get'

machine 'sudo that wants a password'
with_locked_sudo && with_apt
run test //...
expect_status 2
expect_in err "$err" 'install these packages'
expect_not_in log "$log" 'apt-get update'

machine 'root without apt-get'
with_root
run test //...
expect_status 2
expect_in err "$err" 'install these packages'

machine 'apt-get that fails'
with_root && with_broken_apt
run test //...
expect_status 2
expect_in err "$err" 'E: no network'
expect_in err "$err" 'install these packages'

machine 'an installation that brings no bazel'
with_root && with_apt
fake apt-get ''
run test //...
expect_status 2
expect_in err "$err" 'still missing after the installation: bazel-bootstrap gcc g++ googletest libjansson-dev zlib1g-dev libcairo2-dev libncurses-dev'

machine 'libraries missing, nothing to install them with'
with_bazel bazel && with_compiler
run build //:vmpool
expect_status 5
expect_in out "$out" 'ran as given: build //:vmpool'
expect_in err "$err" 'apt-get install googletest libjansson-dev zlib1g-dev libcairo2-dev libncurses-dev'
expect_in err "$err" 'going on'

machine 'a compiler of the user'
with_bazel bazel && with_googletest && with_headers
fake g++ ''
fake mycc 'cat >/dev/null'
status=0
env -i PATH="$scratch/bin" GTEST_SRC="$scratch/src" CC=mycc sh "$bazelw" info >"$scratch/out" 2>"$scratch/err" </dev/null || status=$?
out=$(cat "$scratch/out") err=$(cat "$scratch/err") log=$(cat "$scratch/log")
expect_status 5
[ -z "$err" ] || fail 'asks for a compiler although CC names one'

[ "$failures" = 0 ] || exit 1
echo 'all machines behaved'
