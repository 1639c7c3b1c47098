// Made by tools/viewer/build.mjs.
#define VIEWER_SHA256 "e53fc661965ac9997797d88b580f67b6095568e0977f5b47562b5347cfe646b1"
