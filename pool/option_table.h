// option_table.h: the table behind options.h's lists, and what can be done with one value of it.
//
// Owns: the descriptors, the words of choices and presets, parsing, range and text of a single value. Does not own:
// sources and their precedence (options.c).
#ifndef VMPOOL_POOL_OPTION_TABLE_H_
#define VMPOOL_POOL_OPTION_TABLE_H_

#include "pool/options.h"

typedef struct vmp_choice {
  const char *word;  // NULL ends a list
  int value;
} vmp_choice;

typedef enum vmp_value_kind {
  KIND_bytes,
  KIND_limit,
  KIND_share,
  KIND_flag,
  KIND_choice,
  KIND_number,
  KIND_ordinal,
  KIND_micros,
  KIND_text,
  KIND_devices,
  KIND_sizes,
} vmp_value_kind;

typedef struct vmp_descriptor {
  const char *key;
  vmp_value_kind kind;
  size_t offset;  // of the value in vmp_config
  const char *default_text;
  const vmp_choice *choices;
  bool nonzero;
  const char *sentence;
} vmp_descriptor;

extern const vmp_descriptor vmp_option_table[VMP_OPTION_COUNT];

// vmp_option_value returns where the config keeps an option's value.
void *vmp_option_value(vmp_config *config, vmp_option option);
const void *vmp_option_const_value(const vmp_config *config, vmp_option option);

// vmp_option_parse sets a value from text; `origin` is the source's name in messages. VMP_ERROR_CONFIG,
// VMP_ERROR_HOST_OUT_OF_MEMORY.
vmp_status vmp_option_parse(vmp_config *config, vmp_option option, const char *origin, const char *text, size_t length);

// vmp_option_range returns NULL, or what is wrong with a value that has its type.
const char *vmp_option_range(const vmp_config *config, vmp_option option);

// vmp_option_bad_value reports VMP_ERROR_CONFIG: source, key, the text of the value, what is wrong with it.
vmp_status vmp_option_bad_value(const char *origin, vmp_option option, const char *text, size_t length,
                                const char *wrong);

// vmp_preset_text returns what a preset sets, as options text; vmp_preset_name its name. Static storage.
const char *vmp_preset_text(int preset);
const char *vmp_preset_name(int preset);

// vmp_clip bounds a text that the caller supplied, so that a message keeps its end: for "%.*s".
static inline int vmp_clip(size_t length) { return length > 60 ? 60 : (int)length; }

#endif  // VMPOOL_POOL_OPTION_TABLE_H_
