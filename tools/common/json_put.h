// json_put.h: figures as members of JSON objects.
#ifndef VMPOOL_TOOLS_COMMON_JSON_PUT_H_
#define VMPOOL_TOOLS_COMMON_JSON_PUT_H_

#include <jansson.h>
#include <math.h>
#include <stdint.h>

static inline void json_put_count(json_t *object, const char *key, uint64_t value) {
  json_object_set_new(object, key, json_integer((json_int_t)value));
}

// json_put_real rounds to what a figure is worth, so that the document is readable.
static inline void json_put_real(json_t *object, const char *key, double value, double steps_per_unit) {
  json_object_set_new(object, key, json_real(round(value * steps_per_unit) / steps_per_unit));
}

#endif  // VMPOOL_TOOLS_COMMON_JSON_PUT_H_
