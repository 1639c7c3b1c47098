"""The one list of compiler flags. Errors instead of warnings are for CI alone (.bazelrc, --config=ci), so that a
newer compiler doesn't break those who build vmpool as part of something else."""

# Without -c, Bazel compiles for the fastest build. The random tests run millions of operations; a little optimisation
# makes the whole edit and test cycle faster.
_SPEED = select({
    "//:fastbuild": ["-O1"],
    "//conditions:default": [],
})

_WARNINGS = [
    "-Wall",
    "-Wextra",
    "-Wshadow",
    "-Wconversion",
    "-Wpedantic",
]

# For targets that hold only C: -std=c11 and two of the warnings are errors for a C++ file.
VMP_C_COPTS = [
    "-std=c11",
    "-D_GNU_SOURCE",  # memfd_create, membarrier, CPU affinity
    "-fvisibility=hidden",  # what the public headers mark with VMP_API is visible, nothing else
    "-Wstrict-prototypes",
    "-Wmissing-prototypes",
] + _WARNINGS + _SPEED

# For the few C++ files (tests/support, and the check that public headers are valid C++). The standard is set for the
# whole build, in .bazelrc.
VMP_CXX_COPTS = _WARNINGS + _SPEED
