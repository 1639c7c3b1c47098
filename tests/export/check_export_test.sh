#!/bin/sh
# check_export_test.sh VMPOOL INPUTS: runs check_export.py, which needs python3 alone.
set -u
folder=${TEST_TMPDIR:?run me by bazel test}/exports
mkdir -p "$folder"
exec python3 "$(dirname "$0")/check_export.py" "$1" "$2" "$folder"
