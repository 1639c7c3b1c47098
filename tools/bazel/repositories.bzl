"""What comes from outside: GoogleTest's sources, the CUDA headers, the system's libraries for the tools. WORKSPACE (Bazel 4 to 7) and
MODULE.bazel (Bazel 7 and later) call the same rules. Each writes its repository's BUILD file; none of them fails for
something that the build at hand doesn't need."""

_GTEST_URL = "https://github.com/google/googletest/archive/refs/tags/release-1.12.1.tar.gz"
_GTEST_SHA256 = "81964fe578e9bd7c94dfdb09c8e4d6e6759e19967e397dbea48d1c10e45d0df2"
_GTEST_PREFIX = "googletest-release-1.12.1"

_LOADS = """load("@rules_cc//cc:cc_library.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])
"""

def _getenv(rctx, name):
    """The variable's value, "" where it is not set. rctx.getenv (Bazel 7.1) also makes the rule depend on it."""
    if hasattr(rctx, "getenv"):
        return rctx.getenv(name) or ""
    return rctx.os.environ.get(name, "")

def _exists(rctx, path):
    return rctx.path(path).exists

# ---- GoogleTest ----

_GTEST_BUILD = _LOADS + """
cc_library(
    name = "gtest",
    testonly = True,
    srcs = glob(
        ["googletest/src/*.cc", "googletest/src/*.h"],
        exclude = ["googletest/src/gtest-all.cc", "googletest/src/gtest_main.cc"],
    ),
    hdrs = glob(["googletest/include/**/*.h"]),
    copts = ["-w"],
    includes = ["googletest", "googletest/include"],
    linkopts = ["-pthread"],
    linkstatic = True,
)
"""

def _system_googletest_impl(rctx):
    named = _getenv(rctx, "GTEST_SRC")
    found = ""
    for root in ([named] if named else ["/usr/src/googletest"]):
        if _exists(rctx, root + "/googletest/src/gtest.cc"):
            found = root
    if named and not found:
        fail("GTEST_SRC is %s, which holds no googletest/src/gtest.cc" % named)
    if found:
        rctx.symlink(found + "/googletest", "googletest")
    else:
        result = rctx.download_and_extract(
            url = _GTEST_URL,
            sha256 = _GTEST_SHA256,
            stripPrefix = _GTEST_PREFIX,
            allow_fail = True,
        )
        if not result.success:
            fail("no GoogleTest: install Debian's package googletest, or set GTEST_SRC to its sources (download failed)")
    rctx.file("BUILD", _GTEST_BUILD)

system_googletest = repository_rule(
    implementation = _system_googletest_impl,
    environ = ["GTEST_SRC"],
    local = True,
    doc = "GoogleTest from GTEST_SRC, else /usr/src/googletest, else one pinned archive.",
)

# ---- CUDA headers ----

_CUDA_BUILD = _LOADS + """
# cuda.h and cudaTypedefs.h alone, where they are; VMPOOL_HAVE_CUDA_H says which. Nothing links libcuda.
cc_library(
    name = "cuda_headers",
    hdrs = glob(["include/*.h"], allow_empty = True),
    defines = ["VMPOOL_HAVE_CUDA_H={have}"],
    includes = ["include"],
)

# "vmpool_cuda_stub.h" defines VMPOOL_CUDA_STUB, the path of the toolkit's stub libcuda.so, or "".
cc_library(
    name = "cuda_stub",
    hdrs = ["stub/vmpool_cuda_stub.h"],
    includes = ["stub"],
)
"""

def _cuda_prefixes(rctx):
    """Folders that may hold a CUDA toolkit, the likeliest first."""
    named = [_getenv(rctx, name) for name in ["CUDA_PATH", "CUDA_HOME"]]
    prefixes = [prefix for prefix in named if prefix] + ["/usr/local/cuda"]
    for folder in ["/usr/local", "/opt"]:
        if _exists(rctx, folder):
            # newest first, as far as names tell
            prefixes += reversed(sorted([
                str(entry)
                for entry in rctx.path(folder).readdir()
                if entry.basename.startswith("cuda-")
            ]))
    return prefixes + ["/opt/cuda", "/usr/lib/cuda", "/usr/lib/nvidia-cuda-toolkit", "/usr"]

def _cuda_headers_impl(rctx):
    header = ""
    stub = ""
    for prefix in _cuda_prefixes(rctx):
        include = [prefix + folder + "/cuda.h" for folder in ["/include", "/targets/x86_64-linux/include"]]
        for path in include:
            if not header and _exists(rctx, path):
                header = path
        for folder in ["/lib64/stubs", "/targets/x86_64-linux/lib/stubs", "/lib/stubs", "/lib/x86_64-linux-gnu/stubs"]:
            if not stub and _exists(rctx, prefix + folder + "/libcuda.so"):
                stub = prefix + folder + "/libcuda.so"
    if header:
        rctx.symlink(header, "include/cuda.h")
        typedefs = header.replace("/cuda.h", "/cudaTypedefs.h")  # the prototype of each version of each call
        if _exists(rctx, typedefs):
            rctx.symlink(typedefs, "include/cudaTypedefs.h")
    else:
        rctx.file("include/no_cuda_h.txt", "no cuda.h was found\n")
    rctx.file("stub/vmpool_cuda_stub.h", "#define VMPOOL_CUDA_STUB \"%s\"\n" % stub)
    rctx.file("BUILD", _CUDA_BUILD.format(have = 1 if header else 0))

cuda_headers = repository_rule(
    implementation = _cuda_headers_impl,
    environ = ["CUDA_PATH", "CUDA_HOME"],
    local = True,
    doc = "cuda.h and cudaTypedefs.h from CUDA_PATH, CUDA_HOME or the usual prefixes, else an empty library.",
)

# ---- libraries of the system, for the tools ----

_LIBRARY_BUILD = _LOADS + """
cc_library(
    name = "{name}",
    hdrs = {headers},
    includes = ["include"],
    linkopts = ["-l{link}"],
)
"""

# Fails when it is built, not when it is loaded: the library itself needs none of these.
_NO_LIBRARY_BUILD = _LOADS + """
genrule(
    name = "missing",
    outs = ["include/{header}"],
    cmd = "echo 'no {header}: install the package {package}' >&2; exit 1",
)

cc_library(
    name = "{name}",
    hdrs = ["include/{header}"],
    includes = ["include"],
)
"""

def _find_header(rctx, header):
    folders = ["/usr/include", "/usr/local/include"]
    if _exists(rctx, "/usr/include"):
        # some headers are specific to the architecture
        folders += [str(entry) for entry in rctx.path("/usr/include").readdir() if "-linux-" in entry.basename]
    for folder in folders:
        if _exists(rctx, folder + "/" + header):
            return folder + "/" + header
    return ""

def _system_library_impl(rctx):
    found = {header: _find_header(rctx, header) for header in rctx.attr.headers}
    missing = [header for header in rctx.attr.headers if not found[header]]
    if missing:
        rctx.file("BUILD", _NO_LIBRARY_BUILD.format(
            name = rctx.attr.target,
            header = missing[0],
            package = rctx.attr.package,
        ))
        return
    for header, path in found.items():
        rctx.symlink(path, "include/" + header)
    rctx.file("BUILD", _LIBRARY_BUILD.format(
        name = rctx.attr.target,
        headers = ["include/" + header for header in rctx.attr.headers],
        link = rctx.attr.link,
    ))

system_library = repository_rule(
    implementation = _system_library_impl,
    attrs = {
        "target": attr.string(mandatory = True, doc = "The library's name in its repository."),
        "headers": attr.string_list(mandatory = True, doc = "All of its headers, below /usr/include."),
        "link": attr.string(mandatory = True, doc = "What -l takes."),
        "package": attr.string(mandatory = True, doc = "Debian's package with the headers, for the message."),
    },
    local = True,
    doc = "A library of the system that the tools use: its headers, where they are, and its name for the linker.",
)
