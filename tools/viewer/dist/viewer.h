// Made by tools/viewer/build.mjs.
#define VIEWER_SHA256 "5e542759e9d653ee347d6782927cfbc7b5e2d854f098049202c237515e07f45a"
