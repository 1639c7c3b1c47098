"""cc_library as rules_cc names it, from the rules that are built into Bazel 4 to 7."""

cc_library = native.cc_library
