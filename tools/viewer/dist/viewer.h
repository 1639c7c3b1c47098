// Made by tools/viewer/build.mjs.
#define VIEWER_SHA256 "4af72f94239fc703d1c2db3232cf68c40a09a33cd95ba220a3ffc9fe7ad48839"
