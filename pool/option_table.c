// option_table.c: see option_table.h and options.h.
#include "pool/option_table.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "pool/option_text.h"
#include "vmm/error.h"
#include "vmm/memory.h"

static const vmp_choice driver_choices[] = {{"cuda", VMP_DRIVER_CUDA}, {"host", VMP_DRIVER_HOST}, {NULL, 0}};
static const vmp_choice preset_choices[] = {{"mixed", VMP_PRESET_MIXED},       {"tight", VMP_PRESET_TIGHT},
                                            {"classic", VMP_PRESET_CLASSIC},   {"slab", VMP_PRESET_SLAB},
                                            {"mid", VMP_PRESET_MID},           {"buddy", VMP_PRESET_BUDDY},
                                            {"training", VMP_PRESET_TRAINING}, {"inference", VMP_PRESET_INFERENCE},
                                            {"blocks", VMP_PRESET_BLOCKS},     {NULL, 0}};
static const vmp_choice strategy_choices[] = {{"dynamic", VMP_STRATEGY_DYNAMIC},
                                              {"static", VMP_STRATEGY_STATIC},
                                              {"predictive", VMP_STRATEGY_PREDICTIVE},
                                              {NULL, 0}};
static const vmp_choice cross_stream_choices[] = {
    {"wait", VMP_CROSS_STREAM_WAIT}, {"complete", VMP_CROSS_STREAM_COMPLETE}, {NULL, 0}};

// What each preset sets, in the language of VMP_CONF.
static const char *const preset_texts[] = {
    [VMP_PRESET_MIXED] = "",
    [VMP_PRESET_TIGHT] = "chunk_max:1granule,no_map_ahead:1,edges:1,slab_max:32KiB",
    [VMP_PRESET_CLASSIC] = "slab_max:1MiB,buddy_from:64MiB",
    [VMP_PRESET_SLAB] = "slab_max:1MiB,buddy_from:0",
    [VMP_PRESET_MID] = "slab_max:0",
    [VMP_PRESET_BUDDY] = "slab_max:0,buddy_from:0",
    [VMP_PRESET_TRAINING] = "strategy:predictive,buddy_from:1GiB",
    [VMP_PRESET_INFERENCE] = "strategy:static,slab_max:1MiB",
    [VMP_PRESET_BLOCKS] = "classes:2MiB+4MiB+8MiB+16MiB",
};

enum { ZERO = 0, NONZERO = 1 };

const vmp_descriptor vmp_option_table[VMP_OPTION_COUNT] = {
#define X(key, kind, how, field, default_text, choices, zero, sentence) \
  {#key, KIND_##kind, offsetof(vmp_config, key), default_text, choices, zero == NONZERO, sentence},
    VMP_DRIVER_OPTIONS(X) VMP_POOL_OPTIONS(X)
#undef X
};

void *vmp_option_value(vmp_config *config, vmp_option option) {
  return (char *)config + vmp_option_table[option].offset;
}

const void *vmp_option_const_value(const vmp_config *config, vmp_option option) {
  return (const char *)config + vmp_option_table[option].offset;
}

const char *vmp_preset_text(int preset) { return preset_texts[preset]; }
const char *vmp_preset_name(int preset) { return preset_choices[preset].word; }

const char *vmp_option_key(vmp_option option) { return vmp_option_table[option].key; }
const char *vmp_option_sentence(vmp_option option) { return vmp_option_table[option].sentence; }

bool vmp_option_is_driver(vmp_option option) {
  switch (option) {
#define X(key, ...) case VMP_OPTION_##key:
    VMP_DRIVER_OPTIONS(X)
#undef X
    return true;
    default: return false;
  }
}

static const char *word_of(const vmp_choice *choices, int value) {
  for (; choices->word != NULL; choices++) {
    if (choices->value == value) return choices->word;
  }
  return NULL;
}

// ---- messages ----

// list_words writes "cuda, host".
static void list_words(const vmp_choice *choices, char *buffer, size_t size) {
  size_t used = 0;
  buffer[0] = '\0';
  for (const vmp_choice *c = choices; c->word != NULL && used < size; c++) {
    used += (size_t)snprintf(buffer + used, size - used, "%s%s", c == choices ? "" : ", ", c->word);
  }
}

vmp_status vmp_option_bad_value(const char *origin, vmp_option option, const char *text, size_t length,
                                const char *wrong) {
  return vmp_fail(VMP_ERROR_CONFIG, "%s: the value of %s is \"%.*s\": %s", origin, vmp_option_table[option].key,
                  vmp_clip(length), text, wrong);
}

static vmp_status bad_choice(const char *origin, const vmp_descriptor *d, const char *text, size_t length) {
  char words[128];
  list_words(d->choices, words, sizeof words);
  size_t best = SIZE_MAX;
  const vmp_choice *nearest = NULL;
  for (const vmp_choice *c = d->choices; c->word != NULL; c++) {
    size_t distance = vmp_word_distance(text, length, c->word, strlen(c->word));
    if (distance < best) {
      best = distance;
      nearest = c;
    }
  }
  if (nearest != NULL && best <= 2) {
    return vmp_fail(VMP_ERROR_CONFIG, "%s: %s has no choice \"%.*s\"; did you mean %s? the choices are %s", origin,
                    d->key, vmp_clip(length), text, nearest->word, words);
  }
  return vmp_fail(VMP_ERROR_CONFIG, "%s: %s has no choice \"%.*s\"; the choices are %s", origin, d->key,
                  vmp_clip(length), text, words);
}

// ---- parsing ----

static vmp_status set_text(vmp_config *config, vmp_option option, const char *text, size_t length) {
  char *copy = NULL;
  if (length > 0) {
    copy = vmp_mem_calloc(length + 1, 1);
    if (copy == NULL) {
      return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for the value of %s", vmp_option_table[option].key);
    }
    memcpy(copy, text, length);
  }
  char **value = vmp_option_value(config, option);
  vmp_mem_free(*value);
  *value = copy;
  return VMP_OK;
}

// parse_ordinals reads "1+2".
static const char *parse_ordinals(const char *text, size_t length, vmp_ordinals *out) {
  vmp_ordinals list = {0};
  size_t start = 0;
  while (start < length) {
    size_t end = start;
    while (end < length && text[end] != '+') end++;
    uint64_t value;
    const char *wrong = vmp_text_number(text + start, end - start, &value);
    if (wrong != NULL || value > INT_MAX) return "write device ordinals with + between them, such as 1+2";
    if (list.count == sizeof list.values / sizeof list.values[0]) return "at most 16 devices can be named";
    list.values[list.count++] = (int)value;
    if (end + 1 == length) return "it ends with a +; write device ordinals with + between them, such as 1+2";
    start = end + 1;
  }
  *out = list;
  return NULL;
}

// parse_sizes reads "2MiB+4MiB".
static const char *parse_sizes(const char *text, size_t length, vmp_sizes *out) {
  vmp_sizes list = {0};
  size_t start = 0;
  while (start < length) {
    size_t end = start;
    while (end < length && text[end] != '+') end++;
    if (list.count == VMP_MAX_SIZES) return "at most 64 sizes can be given";
    const char *wrong = vmp_text_size(text + start, end - start, false, &list.values[list.count]);
    if (wrong != NULL) return wrong;
    list.count++;
    if (end + 1 == length) return "it ends with a +; write sizes with + between them, such as 2MiB+4MiB";
    start = end + 1;
  }
  *out = list;
  return NULL;
}

static vmp_status set_choice(vmp_config *config, vmp_option option, const char *origin, const char *text,
                             size_t length) {
  const vmp_descriptor *d = &vmp_option_table[option];
  for (const vmp_choice *c = d->choices; c->word != NULL; c++) {
    if (strlen(c->word) == length && memcmp(c->word, text, length) == 0) {
      *(int *)vmp_option_value(config, option) = c->value;
      return VMP_OK;
    }
  }
  return bad_choice(origin, d, text, length);
}

// parse_small reads the numeric kinds whose value is not a uint64_t.
static const char *parse_small(vmp_value_kind kind, const char *text, size_t length, void *value) {
  uint64_t number;
  const char *wrong = vmp_text_number(text, length, &number);
  if (wrong != NULL) return wrong;
  if (kind == KIND_flag) {
    if (number > 1) return "write 0 or 1";
    *(bool *)value = number == 1;
  } else {
    if (number > INT_MAX) return "it is larger than any ordinal";
    *(int *)value = (int)number;
  }
  return NULL;
}

vmp_status vmp_option_parse(vmp_config *config, vmp_option option, const char *origin, const char *text,
                            size_t length) {
  const vmp_descriptor *d = &vmp_option_table[option];
  void *value = vmp_option_value(config, option);
  const char *wrong = NULL;
  switch (d->kind) {
    case KIND_text: return set_text(config, option, text, length);
    case KIND_choice: return set_choice(config, option, origin, text, length);
    case KIND_bytes:
    case KIND_limit: wrong = vmp_text_size(text, length, d->kind == KIND_limit, value); break;
    case KIND_number: wrong = vmp_text_number(text, length, value); break;
    case KIND_micros: wrong = vmp_text_micros(text, length, value); break;
    case KIND_share: wrong = vmp_text_share(text, length, value); break;
    case KIND_flag:
    case KIND_ordinal: wrong = parse_small(d->kind, text, length, value); break;
    case KIND_devices: wrong = parse_ordinals(text, length, value); break;
    case KIND_sizes: wrong = parse_sizes(text, length, value); break;
  }
  return wrong == NULL ? VMP_OK : vmp_option_bad_value(origin, option, text, length, wrong);
}

// sizes_range: what can be said before the granule is known; options_resolve.c has the rest.
static const char *sizes_range(const vmp_sizes *list) {
  for (size_t i = 0; i < list->count; i++) {
    if ((list->values[i] & ~VMP_SIZE_IN_GRANULES) == 0) return "a block has at least one byte";
    if ((list->values[i] & ~VMP_SIZE_IN_GRANULES) > VMP_SIZE_MAX) return "it is larger than any address space";
  }
  return NULL;
}

const char *vmp_option_range(const vmp_config *config, vmp_option option) {
  const vmp_descriptor *d = &vmp_option_table[option];
  const void *value = vmp_option_const_value(config, option);
  uint64_t u64;
  double real;
  int small;
  switch (d->kind) {
    case KIND_bytes:
    case KIND_limit:
      u64 = *(const uint64_t *)value;
      if (d->kind == KIND_limit && u64 == UINT64_MAX) return NULL;
      if ((u64 & VMP_SIZE_IN_GRANULES) != 0 && vmp_option_is_driver(option)) return "the granule is not known here";
      if ((u64 & ~VMP_SIZE_IN_GRANULES) > VMP_SIZE_MAX) return "it is larger than any address space";
      return u64 == 0 && d->nonzero ? "it must not be 0; leave the key out for the default" : NULL;
    case KIND_number:
      return *(const uint64_t *)value == 0 && d->nonzero ? "it must not be 0; leave the key out for the default" : NULL;
    case KIND_share:
      real = *(const double *)value;
      return real >= 0 && real <= 1 ? NULL : "it must lie between 0 and 1";
    case KIND_ordinal:
      small = *(const int *)value;
      if (small < 0) return "it is negative; ordinals begin with 0";
      return small == 0 && d->nonzero ? "it must not be 0; leave the key out for the default" : NULL;
    case KIND_choice:
      return word_of(d->choices, *(const int *)value) != NULL ? NULL : "it is none of the documented values";
    case KIND_sizes: return sizes_range(value);
    case KIND_devices:
    case KIND_micros:
    case KIND_flag:
    case KIND_text: return NULL;
  }
  return NULL;
}

// ---- printing ----

static size_t print_ordinals(const vmp_ordinals *list, char *buffer, size_t size) {
  size_t used = 0;
  if (size > 0) buffer[0] = '\0';
  for (size_t i = 0; i < list->count; i++) {
    char *at = used < size ? buffer + used : NULL;
    used += (size_t)snprintf(at, at == NULL ? 0 : size - used, "%s%d", i == 0 ? "" : "+", list->values[i]);
  }
  return used;
}

static size_t print_sizes(const vmp_sizes *list, char *buffer, size_t size) {
  size_t used = 0;
  if (size > 0) buffer[0] = '\0';
  for (size_t i = 0; i < list->count; i++) {
    char text[32];
    (void)vmp_print_size(list->values[i], text, sizeof text);
    char *at = used < size ? buffer + used : NULL;
    used += (size_t)snprintf(at, at == NULL ? 0 : size - used, "%s%s", i == 0 ? "" : "+", text);
  }
  return used;
}

size_t vmp_config_value(const vmp_config *config, vmp_option option, char *buffer, size_t size) {
  const vmp_descriptor *d = &vmp_option_table[option];
  const void *value = vmp_option_const_value(config, option);
  const char *text;
  switch (d->kind) {
    case KIND_bytes:
    case KIND_limit: return vmp_print_size(*(const uint64_t *)value, buffer, size);
    case KIND_micros: return vmp_print_micros(*(const uint64_t *)value, buffer, size);
    case KIND_share: return vmp_print_share(*(const double *)value, buffer, size);
    case KIND_number: return (size_t)snprintf(buffer, size, "%" PRIu64, *(const uint64_t *)value);
    case KIND_flag: return (size_t)snprintf(buffer, size, "%d", *(const bool *)value ? 1 : 0);
    case KIND_ordinal: return (size_t)snprintf(buffer, size, "%d", *(const int *)value);
    case KIND_choice:
      text = word_of(d->choices, *(const int *)value);
      return (size_t)snprintf(buffer, size, "%s", text == NULL ? "" : text);
    case KIND_text: text = *(char *const *)value; return (size_t)snprintf(buffer, size, "%s", text == NULL ? "" : text);
    case KIND_devices: return print_ordinals(value, buffer, size);
    case KIND_sizes: return print_sizes(value, buffer, size);
  }
  return 0;
}
