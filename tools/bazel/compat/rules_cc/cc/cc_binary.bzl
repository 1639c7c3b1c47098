"""cc_binary as rules_cc names it, from the rules that are built into Bazel 4 to 7."""

cc_binary = native.cc_binary
