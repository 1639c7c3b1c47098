#include "tools/compare/cost.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/file.h"

void model_cost_defaults(model_cost *cost) {
  *cost = (model_cost){.reserve = 10,
                       .create = 30,
                       .map = 1.5,
                       .set_access = 5,
                       .set_access_per_mapping = 30,
                       .unmap_per_mapping = 20,
                       .release = 20,
                       .alloc = 100,
                       .free = 100};
}

static double *entry_of(model_cost *cost, const char *name) {
  const struct {
    const char *name;
    double *value;
  } entries[] = {
      {"mem_address_reserve", &cost->reserve},
      {"mem_create", &cost->create},
      {"create_per_mib", &cost->create_per_mib},
      {"mem_map", &cost->map},
      {"mem_set_access", &cost->set_access},
      {"set_access_per_mapping", &cost->set_access_per_mapping},
      {"mem_unmap", &cost->unmap},
      {"unmap_per_mapping", &cost->unmap_per_mapping},
      {"mem_release", &cost->release},
      {"mem_alloc", &cost->alloc},
      {"mem_free", &cost->free},
  };
  for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
    if (strcmp(entries[i].name, name) == 0) return entries[i].value;
  }
  return NULL;
}

static bool read_line(model_cost *cost, const char *path, unsigned number, char *line, tool_error *error) {
  line[strcspn(line, "#\r")] = '\0';
  char *rest = NULL, *end = NULL;
  const char *name = strtok_r(line, " \t", &rest);
  if (name == NULL) return true;
  const char *value = strtok_r(NULL, " \t", &rest);
  const double us = value != NULL ? strtod(value, &end) : -1;
  if (value == NULL || end == value || *end != '\0' || !(us >= 0 && us <= 1e12))
    return tool_fail(error, "%s:%u: a line is a name and microseconds", path, number);
  double *entry = entry_of(cost, name);
  if (entry != NULL) *entry = us;
  return true;
}

bool model_cost_load(model_cost *cost, const char *path, tool_error *error) {
  file_text file;
  if (!file_load(&file, path, error)) return false;
  char *text = strndup(file.text, file.bytes), *rest = text;
  free(file.text);
  bool good = text != NULL || tool_fail(error, "host memory ran out");
  unsigned number = 1;
  for (char *line = strsep(&rest, "\n"); good && line != NULL; line = strsep(&rest, "\n"), number++)
    good = read_line(cost, path, number, line, error);
  free(text);
  return good;
}

double model_cost_us(const model_cost *cost, const model_calls *c) {
  return cost->reserve * (double)c->reserve + cost->create * (double)c->create +
         cost->create_per_mib * (double)c->create_bytes / (1024 * 1024) + cost->map * (double)c->map +
         cost->set_access * (double)c->set_access + cost->set_access_per_mapping * (double)c->access_mappings +
         cost->unmap * (double)c->unmap + cost->unmap_per_mapping * (double)c->unmap_mappings +
         cost->release * (double)c->release + cost->alloc * (double)c->alloc + cost->free * (double)c->free;
}
