"""The rules that the BUILD files of this tree use."""

load("@rules_cc//cc:cc_binary.bzl", "cc_binary")
load("@rules_cc//cc:cc_library.bzl", "cc_library")
load("@rules_cc//cc:cc_test.bzl", "cc_test")
load("//tools/bazel:copts.bzl", "VMP_CXX_COPTS", "VMP_C_COPTS")

_LINKOPTS = ["-pthread"]

def vmp_library(name, copts = [], linkopts = [], **kwargs):
    """A library of C files. Always linked statically: hidden symbols don't cross a shared library."""
    cc_library(
        name = name,
        copts = VMP_C_COPTS + copts,
        linkopts = _LINKOPTS + linkopts,
        linkstatic = True,
        **kwargs
    )

def vmp_cxx_library(name, copts = [], linkopts = [], **kwargs):
    """A library of C++ files."""
    cc_library(
        name = name,
        copts = VMP_CXX_COPTS + copts,
        linkopts = _LINKOPTS + linkopts,
        linkstatic = True,
        **kwargs
    )

def vmp_binary(name, copts = [], linkopts = [], **kwargs):
    """A program of C files."""
    cc_binary(
        name = name,
        copts = VMP_C_COPTS + copts,
        linkopts = _LINKOPTS + linkopts,
        **kwargs
    )

def vmp_test(name, deps = [], copts = [], linkopts = [], size = "small", **kwargs):
    """A test of C files on the shim //tests/support:vtest, which brings main()."""
    cc_test(
        name = name,
        copts = VMP_C_COPTS + copts,
        linkopts = _LINKOPTS + linkopts,
        linkstatic = True,
        size = size,
        deps = deps + ["//tests/support:vtest"],
        **kwargs
    )

def vmp_cxx_test(name, deps = [], copts = [], linkopts = [], size = "small", **kwargs):
    """A test of C++ files on GoogleTest itself."""
    cc_test(
        name = name,
        copts = VMP_CXX_COPTS + copts,
        linkopts = _LINKOPTS + linkopts,
        linkstatic = True,
        size = size,
        deps = deps + ["//tests/support:vtest"],
        **kwargs
    )

def vmp_layer(name):
    """Everything that the package has declared so far, as one target: for queries about the whole folder."""
    native.filegroup(
        name = name,
        srcs = [":" + rule for rule in sorted(native.existing_rules().keys())],
        visibility = ["//tests/build:__pkg__"],
    )
