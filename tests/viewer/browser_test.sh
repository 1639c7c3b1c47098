#!/bin/sh
# browser_test.sh: runs drive.mjs where there is a browser and node; elsewhere it says loudly that it did not.
#
# usage: browser_test.sh VMPOOL INPUTS
set -u

find_program() {
  for name in "$@"; do
    command -v "$name" 2>/dev/null && return
  done
}

skip() {
  {
    echo '********************************************************************'
    echo "SKIPPED: $1"
    echo 'The HTML viewer has NOT been tested on this machine.'
    echo '********************************************************************'
  } >&2
  [ -z "${XML_OUTPUT_FILE:-}" ] || cat >"$XML_OUTPUT_FILE" <<XML
<testsuites><testsuite name="Viewer" tests="1"><testcase classname="Viewer" name="Browser"><skipped message="$1"/></testcase></testsuite></testsuites>
XML
  exit 0
}

chromium=$(find_program chromium chromium-browser google-chrome)
node=$(find_program node nodejs)
[ -n "$chromium" ] || skip 'no chromium: install the package chromium'
[ -n "$node" ] || skip 'no node for chromium: install the package nodejs'
exec "$node" "$(dirname "$0")/drive.mjs" "$1" "$2" "$chromium" "${TEST_UNDECLARED_OUTPUTS_DIR:-${TEST_TMPDIR:-/tmp}/viewer}"
