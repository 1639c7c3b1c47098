// Made by tools/viewer/build.mjs.
#define VIEWER_SHA256 "fd5c7789fa5719f4193cae8a69cf027f92c48a7c279d7fedcdcbda53e77f97ac"
