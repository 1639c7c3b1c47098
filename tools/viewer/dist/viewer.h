// Made by tools/viewer/build.mjs.
#define VIEWER_SHA256 "c2bded7b1a71e3294368608e19fe62828e459eb616a2522d2bd052f7dd36bfaa"
