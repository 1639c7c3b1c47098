#!/usr/bin/env bash
# man_completion_test.sh VMPOOL: manual pages hold what --help says and are clean troff; completion offers commands,
# options and values in bash, and in zsh where there is one; no example of a --help is broken.
set -u

vmpool=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
scratch=${TEST_TMPDIR:?run me by bazel test}
failures=0
fail() {
  failures=$((failures + 1))
  echo "FAILED: $*"
}

commands=$("$vmpool" help | sed -n 's/^  \([a-z]\{2,\}\)  .*/\1/p' | grep -vx help)
[[ $(wc -l <<<"$commands") -ge 18 ]] || fail "vmpool help lists $(wc -l <<<"$commands") commands"

# ---- manual pages ----

"$vmpool" man --all "$scratch/man" || fail 'vmpool man --all'
for command in $commands 'generate train' 'generate serve'; do
  page=$scratch/man/vmpool-${command// /-}.1
  [[ -s $page ]] || { fail "no page for $command"; continue; }
  # shellcheck disable=SC2086 # two words
  for option in $("$vmpool" $command --help | grep -oE '^ +(-., )?--[a-z-]+' | grep -oE -- '--[a-z-]+'); do
    grep -qF -- "${option//-/\\-}" "$page" || fail "the page of $command lacks $option"
  done
  # shellcheck disable=SC2086
  "$vmpool" $command --help | awk 'length > 102 { print; bad = 1 } END { exit bad }' || fail "wide lines in the help of $command"
  # an example that is wrapped goes on without an indent
  # shellcheck disable=SC2086
  "$vmpool" $command --help | awk '/^Examples:/ { on = 1; next } on && /^$/ { on = 0 } on && !/^  / { print; bad = 1 } END { exit bad }' ||
    fail "a broken example in the help of $command"
done
if command -v groff >/dev/null; then
  for page in "$scratch"/man/*.1; do
    warnings=$(groff -man -ww -Tutf8 "$page" 2>&1 >"$scratch/text")
    [[ -z $warnings ]] || fail "$page: $warnings"
    [[ $(wc -l <"$scratch/text") -gt 10 ]] || fail "$page is empty"
  done
else
  echo 'no groff: the pages are not set'
fi
"$vmpool" man frobnicate 2>&1 | grep -q "'frobnicate' is no command" || fail 'a page of no command'

# ---- bash ----

# shellcheck disable=SC1090
source <("$vmpool" completion bash)
compopt() { nospace=1; }
# complete WORD...: what the last word may become; bash breaks words at '=', too.
offers() {
  COMP_WORDS=("$vmpool" "$@") COMP_CWORD=$# COMPREPLY=() nospace=0
  _vmpool
  printf '%s ' "${COMPREPLY[@]}"
}
expect() {
  local wanted=$1 found
  shift
  found=$(offers "$@")
  [[ $found == "$wanted " ]] || fail "completion of '$*' is '$found', not '$wanted '"
}
expect 'html' ht
expect 'check' che
expect '--format=' export --f
expect 'perfetto png prometheus' export --format = p
expect 'auto never always' map --color ''
expect 'train serve' generate ''
expect 'gpt2 gpt2-medium gpt2-large gpt2-xl' generate train --model gpt2
expect 'training' replay --preset tr
expect '' map pool.js
expect '' frobnicate --x
[[ $(offers '') == *'replay '*'completion '* ]] || fail "all commands: $(offers '')"
offers export --form >/dev/null
COMP_WORDS=("$vmpool" export --form) COMP_CWORD=2 nospace=0
_vmpool
[[ $nospace == 1 ]] || fail 'a space is put behind --format='

# ---- zsh ----

if command -v zsh >/dev/null; then
  "$vmpool" completion zsh >"$scratch/_vmpool"
  zsh -n "$scratch/_vmpool" || fail 'the script for zsh is no zsh'
  found=$(zsh -f -c '
    compdef() { : }
    _files() { print -n "files" }
    compadd() { while [[ $1 != -- ]]; do shift; done; shift; print -n -- "$@ " }
    source "$1"
    words=("$2" export --format=p) CURRENT=3; _vmpool; print -n "/ "
    words=("$2" ht) CURRENT=2; _vmpool; print -n "/ "
    words=("$2" export --f) CURRENT=3; _vmpool; print -n "/ "
    words=("$2" map pool.js) CURRENT=3; _vmpool' zsh "$scratch/_vmpool" "$vmpool")
  [[ $found == '--format=perfetto --format=png --format=prometheus / html / --format= / files' ]] || fail "zsh completes '$found'"
else
  echo 'no zsh: its completion is not tried'
fi

[[ $failures == 0 ]] || exit 1
echo 'pages and completion are as they should be'
