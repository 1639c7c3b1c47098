// Made by tools/viewer/build.mjs.
#define VIEWER_SHA256 "d55f86312d85ef7e6f018e4d617776f646be4df52fe95e99611d016b38a51b40"
