// options.c: the sources of options and their precedence. See options.h; one value at a time is option_table.c's,
// what the device decides is options_resolve.c's.
#include "pool/options.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool/option_table.h"
#include "pool/option_text.h"
#include "vmm/error.h"
#include "vmm/memory.h"

// source_text: one source of "key:value" items, with the name that messages give it.
typedef struct source_text {
  vmp_source source;
  const char *origin;
  const char *text;
} source_text;

// nearest_key: the key that a misspelt one most likely means, or NULL. A key with something before or behind it
// ("chunk_max_bytes") is near, too.
static const char *nearest_key(const char *text, size_t length) {
  size_t best = SIZE_MAX;
  const char *nearest = NULL;
  for (size_t i = 0; i < VMP_OPTION_COUNT; i++) {
    const char *key = vmp_option_table[i].key;
    size_t key_length = strlen(key);
    size_t distance = vmp_word_distance(text, length, key, key_length);
    if (length > key_length && memcmp(text, key, key_length) == 0 && text[key_length] == '_') distance = 1;
    size_t allowed = key_length < 5 ? 1 : 3;
    if (distance <= allowed && distance < best) {
      best = distance;
      nearest = key;
    }
  }
  return nearest;
}

static vmp_status unknown_key(const char *origin, const char *text, size_t length) {
  const char *nearest = nearest_key(text, length);
  if (nearest != NULL) {
    return vmp_fail(VMP_ERROR_CONFIG, "%s: there is no option \"%.*s\"; did you mean %s?", origin, vmp_clip(length),
                    text, nearest);
  }
  return vmp_fail(VMP_ERROR_CONFIG, "%s: there is no option \"%.*s\"; vmpool.h lists the options", origin,
                  vmp_clip(length), text);
}

static vmp_status finish_value(vmp_config *config, vmp_option option, vmp_source source, const char *origin,
                               const char *text, size_t length) {
  const char *wrong = vmp_option_range(config, option);
  if (wrong != NULL) return vmp_option_bad_value(origin, option, text, length, wrong);
  config->source[option] = source;
  return VMP_OK;
}

// ---- the texts ----

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static void trim(const char **text, size_t *length) {
  while (*length > 0 && is_blank((*text)[0])) {
    (*text)++;
    (*length)--;
  }
  while (*length > 0 && is_blank((*text)[*length - 1])) (*length)--;
}

static bool find_key(const char *text, size_t length, vmp_option *out) {
  for (size_t i = 0; i < VMP_OPTION_COUNT; i++) {
    if (strlen(vmp_option_table[i].key) == length && memcmp(vmp_option_table[i].key, text, length) == 0) {
      *out = (vmp_option)i;
      return true;
    }
  }
  return false;
}

// read_item reads one "key:value".
static vmp_status read_item(vmp_config *config, const source_text *from, const char *item, size_t length, bool *seen) {
  trim(&item, &length);
  const char *colon = memchr(item, ':', length);
  if (colon == NULL) {
    return vmp_fail(VMP_ERROR_CONFIG, "%s: \"%.*s\" has no value; write key:value, with a comma between options",
                    from->origin, vmp_clip(length), item);
  }
  const char *key = item, *value = colon + 1;
  size_t key_length = (size_t)(colon - item), value_length = length - key_length - 1;
  trim(&key, &key_length);
  trim(&value, &value_length);
  vmp_option option;
  if (!find_key(key, key_length, &option)) return unknown_key(from->origin, key, key_length);
  if (seen[option]) {
    return vmp_fail(VMP_ERROR_CONFIG, "%s: %s is given twice; give it once", from->origin,
                    vmp_option_table[option].key);
  }
  seen[option] = true;
  vmp_status status = vmp_option_parse(config, option, from->origin, value, value_length);
  if (status != VMP_OK) return status;
  return finish_value(config, option, from->source, from->origin, value, value_length);
}

static vmp_status read_text(vmp_config *config, const source_text *from) {
  bool seen[VMP_OPTION_COUNT] = {false};
  const char *text = from->text;
  size_t length = text == NULL ? 0 : strlen(text);
  trim(&text, &length);
  while (length > 0) {
    const char *comma = memchr(text, ',', length);
    size_t item_length = comma == NULL ? length : (size_t)(comma - text);
    vmp_status status = read_item(config, from, text, item_length, seen);
    if (status != VMP_OK) return status;
    if (comma == NULL) break;
    text += item_length + 1;
    length -= item_length + 1;
    if (length == 0) return vmp_fail(VMP_ERROR_CONFIG, "%s: nothing follows the last comma", from->origin);
  }
  return VMP_OK;
}

static vmp_status read_defaults(vmp_config *config) {
  for (size_t i = 0; i < VMP_OPTION_COUNT; i++) {
    const char *text = vmp_option_table[i].default_text;
    if (text[0] == '\0') continue;
    vmp_status status = vmp_option_parse(config, (vmp_option)i, "default", text, strlen(text));
    if (status != VMP_OK) return status;
  }
  return VMP_OK;
}

// ---- the structs ----

static vmp_status field_done(vmp_config *config, vmp_option option) {
  char text[64];
  const char *wrong = vmp_option_range(config, option);
  if (wrong == NULL) {
    config->source[option] = VMP_SOURCE_FIELD;
    return VMP_OK;
  }
  const vmp_descriptor *d = &vmp_option_table[option];
  const void *value = vmp_option_value(config, option);
  if (d->kind == KIND_choice || d->kind == KIND_ordinal) {
    (void)snprintf(text, sizeof text, "%d", *(const int *)value);
  } else if (d->kind == KIND_share) {
    (void)snprintf(text, sizeof text, "%g", *(const double *)value);
  } else {
    (void)snprintf(text, sizeof text, "%" PRIu64, *(const uint64_t *)value);
  }
  return vmp_option_bad_value("options", option, text, strlen(text), wrong);
}

static vmp_status take_u64(vmp_config *config, vmp_option option, uint64_t field) {
  if (field == 0) return VMP_OK;
  *(uint64_t *)vmp_option_value(config, option) = field;
  bool is_size = vmp_option_table[option].kind == KIND_bytes || vmp_option_table[option].kind == KIND_limit;
  bool is_none = vmp_option_table[option].kind == KIND_limit && field == UINT64_MAX;
  if (is_size && !is_none && field > VMP_SIZE_MAX) {
    char text[32];
    (void)snprintf(text, sizeof text, "%" PRIu64, field);
    return vmp_option_bad_value("options", option, text, strlen(text), "it is larger than any address space");
  }
  return field_done(config, option);
}

static vmp_status take_int(vmp_config *config, vmp_option option, int field) {
  if (field == 0) return VMP_OK;
  if (vmp_option_table[option].kind == KIND_flag) {
    *(bool *)vmp_option_value(config, option) = true;
  } else {
    *(int *)vmp_option_value(config, option) = field;
  }
  return field_done(config, option);
}

static vmp_status take_real(vmp_config *config, vmp_option option, double field) {
  if (field == 0) return VMP_OK;
  *(double *)vmp_option_value(config, option) = field;
  return field_done(config, option);
}

// take_text also serves WORD: the parser knows a choice from a text.
static vmp_status take_text(vmp_config *config, vmp_option option, const char *field) {
  if (field == NULL) return VMP_OK;
  vmp_status status = vmp_option_parse(config, option, "options", field, strlen(field));
  return status == VMP_OK ? field_done(config, option) : status;
}

static vmp_status take_ordinals(vmp_config *config, vmp_option option, const int *field, size_t count) {
  if (count == 0) return VMP_OK;
  vmp_ordinals *list = vmp_option_value(config, option);
  if (field == NULL || count > sizeof list->values / sizeof list->values[0]) {
    return vmp_fail(VMP_ERROR_CONFIG, "options: %s names %zu devices; give an array of 1 to 16 ordinals",
                    vmp_option_table[option].key, count);
  }
  list->count = count;
  for (size_t i = 0; i < count; i++) {
    if (field[i] < 0) {
      return vmp_fail(VMP_ERROR_CONFIG, "options: %s holds %d; ordinals begin with 0", vmp_option_table[option].key,
                      field[i]);
    }
    list->values[i] = field[i];
  }
  return field_done(config, option);
}

static vmp_status take_sizes(vmp_config *config, vmp_option option, const uint64_t *field, size_t count) {
  if (count == 0) return VMP_OK;
  vmp_sizes *list = vmp_option_value(config, option);
  if (field == NULL || count > VMP_MAX_SIZES) {
    return vmp_fail(VMP_ERROR_CONFIG, "options: %s names %zu sizes; give an array of 1 to %d",
                    vmp_option_table[option].key, count, VMP_MAX_SIZES);
  }
  list->count = count;
  memcpy(list->values, field, count * sizeof *field);
  return field_done(config, option);
}

// copy_struct brings a caller's struct of another version to ours: what it lacks is 0, and what we don't know
// must be 0.
static vmp_status copy_struct(void *ours, size_t our_size, const void *theirs, const char *name) {
  size_t size;
  memcpy(&size, theirs, sizeof size);
  if (size < sizeof size || size > 65536) {
    return vmp_fail(VMP_ERROR_CONFIG,
                    "%s: struct_size is %zu, which no version of the struct has; initialise it with "
                    "its _INIT macro",
                    name, size);
  }
  for (size_t i = our_size; i < size; i++) {
    if (((const unsigned char *)theirs)[i] != 0) {
      return vmp_fail(VMP_ERROR_CONFIG,
                      "%s: a field beyond this library's version (%d.%d.%d) is set; use a newer "
                      "library",
                      name, VMP_VERSION_MAJOR, VMP_VERSION_MINOR, VMP_VERSION_PATCH);
    }
  }
  memset(ours, 0, our_size);
  memcpy(ours, theirs, size < our_size ? size : our_size);
  return VMP_OK;
}

#define TAKE_U64(key, field) take_u64(config, VMP_OPTION_##key, fields->field)
#define TAKE_INT(key, field) take_int(config, VMP_OPTION_##key, (int)fields->field)
#define TAKE_REAL(key, field) take_real(config, VMP_OPTION_##key, fields->field)
#define TAKE_TEXT(key, field) take_text(config, VMP_OPTION_##key, fields->field)
#define TAKE_WORD(key, field) take_text(config, VMP_OPTION_##key, fields->field)
#define TAKE_ORDINALS(key, field) take_ordinals(config, VMP_OPTION_##key, fields->field, fields->num_##field)
#define TAKE_ONLY(key, field) VMP_OK
#define TAKE_SIZES(key, field) take_sizes(config, VMP_OPTION_##key, fields->field, fields->num_##field)
#define X(key, kind, how, field, ...) \
  if (status == VMP_OK) {             \
    status = TAKE_##how(key, field);  \
  }

static vmp_status read_driver_fields(vmp_config *config, const vmp_driver_options *fields) {
  vmp_status status = VMP_OK;
  VMP_DRIVER_OPTIONS(X)
  return status;
}

static vmp_status read_pool_fields(vmp_config *config, const vmp_pool_options *fields) {
  vmp_status status = VMP_OK;
  VMP_POOL_OPTIONS(X)
  return status;
}
#undef X

// ---- all sources ----

typedef struct inputs {
  vmp_driver_options driver;
  vmp_pool_options pool;
  const char *environment;
} inputs;

// read_sources applies the sources in their order; `preset` NULL leaves the preset out.
static vmp_status read_sources(vmp_config *config, const inputs *in, const char *preset) {
  const source_text from_preset = {VMP_SOURCE_PRESET, "preset", preset};
  const source_text from_conf = {VMP_SOURCE_CONF, "conf", in->pool.conf};
  const source_text from_environment = {VMP_SOURCE_ENVIRONMENT, "VMP_CONF", in->environment};
  vmp_status status = read_defaults(config);
  if (status == VMP_OK) status = read_text(config, &from_preset);
  if (status == VMP_OK) status = read_driver_fields(config, &in->driver);
  if (status == VMP_OK) status = read_pool_fields(config, &in->pool);
  if (status == VMP_OK) status = read_text(config, &from_conf);
  if (status == VMP_OK) status = read_text(config, &from_environment);
  return status;
}

vmp_status vmp_config_read(vmp_config *config, const vmp_driver_options *driver_options,
                           const vmp_pool_options *pool_options, const char *environment) {
  inputs in = {.environment = environment};
  vmp_status status = VMP_OK;
  if (driver_options != NULL) {
    status = copy_struct(&in.driver, sizeof in.driver, driver_options, "vmp_driver_options");
  }
  if (status == VMP_OK && pool_options != NULL) {
    status = copy_struct(&in.pool, sizeof in.pool, pool_options, "vmp_pool_options");
  }
  if (status != VMP_OK) return status;

  // Any source may name the preset, and the preset comes before most of them: find it first, then apply all.
  vmp_config next = {0};
  status = read_sources(&next, &in, NULL);
  int preset = next.preset;
  vmp_config_free(&next);
  if (status != VMP_OK) return status;
  status = read_sources(&next, &in, vmp_preset_text(preset));
  if (status != VMP_OK) {
    vmp_config_free(&next);
    return status;
  }
  vmp_config_free(config);
  *config = next;
  return VMP_OK;
}

void vmp_config_free(vmp_config *config) {
  for (size_t i = 0; i < VMP_OPTION_COUNT; i++) {
    if (vmp_option_table[i].kind == KIND_text) vmp_mem_free(*(char **)vmp_option_value(config, (vmp_option)i));
  }
  memset(config, 0, sizeof *config);
}

const char *vmp_config_environment(void) { return getenv("VMP_CONF"); }

// ---- printing ----

size_t vmp_config_source(const vmp_config *config, vmp_option option, char *buffer, size_t size) {
  static const char *const names[] = {"default", "preset", "field", "conf", "VMP_CONF"};
  vmp_source source = config->source[option];
  bool preset = source == VMP_SOURCE_PRESET;
  return (size_t)snprintf(buffer, size, "%s%s%s%s", names[source], preset ? " " : "",
                          preset ? vmp_preset_name(config->preset) : "", config->adjusted[option] ? ", adjusted" : "");
}

size_t vmp_config_print(const vmp_config *config, char *buffer, size_t size) {
  size_t used = 0;
  if (size > 0) buffer[0] = '\0';
  for (size_t i = 0; i < VMP_OPTION_COUNT; i++) {
    vmp_option option = (vmp_option)i;
    if (vmp_option_is_driver(option)) continue;
    char source[64];
    (void)vmp_config_source(config, option, source, sizeof source);
    // One item at a time, each at its place or, once the buffer is full, only counted.
    used += (size_t)snprintf(used < size ? buffer + used : NULL, used < size ? size - used : 0,
                             "%s:", vmp_option_table[i].key);
    used += vmp_config_value(config, option, used < size ? buffer + used : NULL, used < size ? size - used : 0);
    used += (size_t)snprintf(used < size ? buffer + used : NULL, used < size ? size - used : 0, " (%s)\n", source);
  }
  return used;
}
