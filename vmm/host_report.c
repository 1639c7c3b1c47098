// host_report.c: what the host driver tells about itself: violations, counters, census, leaks.
//
// Sentences are written only when a rule is broken; the last VMP_HOST_KEPT_VIOLATIONS are kept in a ring.
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/host_model.h"

void vmp_host_describe_site(const void *site, char *buffer, size_t size) {
  Dl_info info;
  if (site != NULL && dladdr(site, &info) != 0 && info.dli_fname != NULL) {
    const char *slash = strrchr(info.dli_fname, '/');
    const char *file = slash != NULL ? slash + 1 : info.dli_fname;
    size_t offset = (size_t)((uintptr_t)site - (uintptr_t)info.dli_fbase);
    (void)snprintf(buffer, size, "%s+0x%zx", file, offset);
  } else {
    (void)snprintf(buffer, size, "%p", site);
  }
}

static void keep_sentence(vmp_host *host, int rule, const char *kind, const char *format, va_list args) {
  char *sentence = host->violations[host->num_sentences % VMP_HOST_KEPT_VIOLATIONS];
  int used = snprintf(sentence, VMP_HOST_SENTENCE_BYTES, "%s %d, call %llu: ", kind, rule,
                      (unsigned long long)host->call_number);
  if (used > 0 && (size_t)used < VMP_HOST_SENTENCE_BYTES) {
    (void)vsnprintf(sentence + used, VMP_HOST_SENTENCE_BYTES - (size_t)used, format, args);
  }
  host->num_sentences++;
}

// Level compat: where the sources name another code for a rule, it gives that one.
static int code_at_level(const vmp_host *host, int rule, int code) {
  static const struct {
    int rule, strict, compat;
  } others[] = {
      {7, VMP_CU_CONTEXT_IS_DESTROYED, VMP_CU_INVALID_CONTEXT},
      {11, VMP_CU_INVALID_VALUE, VMP_CU_OUT_OF_MEMORY},
      {12, VMP_CU_INVALID_VALUE, VMP_CU_OUT_OF_MEMORY},
      {13, VMP_CU_INVALID_VALUE, VMP_CU_OUT_OF_MEMORY},
      {20, VMP_CU_INVALID_VALUE, VMP_CU_INVALID_DEVICE},
      {21, VMP_CU_INVALID_VALUE, VMP_CU_NOT_SUPPORTED},
      {22, VMP_CU_NOT_SUPPORTED, VMP_CU_INVALID_VALUE},
      {27, VMP_CU_INVALID_VALUE, VMP_CU_NOT_SUPPORTED},
      {38, VMP_CU_INVALID_DEVICE, VMP_CU_INVALID_VALUE},
      {39, VMP_CU_INVALID_DEVICE, VMP_CU_PEER_ACCESS_UNSUPPORTED},
      {40, VMP_CU_INVALID_VALUE, VMP_CU_NOT_SUPPORTED},
      {47, VMP_CU_INVALID_VALUE, VMP_CU_UNKNOWN},
      {48, VMP_CU_NOT_PERMITTED, VMP_CU_NOT_SUPPORTED},
      {50, VMP_CU_INVALID_HANDLE, VMP_CU_INVALID_VALUE},
  };
  if (host->options.level != VMP_HOST_COMPAT) return code;
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
    if (others[i].rule == rule && others[i].strict == code) return others[i].compat;
  }
  return code;
}

int vmp_host_break(vmp_host *host, int rule, int code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  keep_sentence(host, rule, "rule", format, args);
  va_end(args);
  host->counters.violations++;
  if (host->options.abort_on_violation != 0) abort();
  return code_at_level(host, rule, code);
}

void vmp_host_remark(vmp_host *host, int rule, const char *format, ...) {
  va_list args;
  va_start(args, format);
  keep_sentence(host, rule, "lint", format, args);
  va_end(args);
  host->counters.lint++;
}

int vmp_host_refuse(vmp_host *host, vmp_host_level relaxed_from, int rule, int code, const char *format, ...) {
  bool refused = host->options.level < relaxed_from;
  if (!refused && host->options.level == VMP_HOST_COMPAT) return 0;
  va_list args;
  va_start(args, format);
  keep_sentence(host, rule, refused ? "rule" : "lint", format, args);
  va_end(args);
  if (!refused) {
    host->counters.lint++;
    return 0;
  }
  host->counters.violations++;
  if (host->options.abort_on_violation != 0) abort();
  return code;
}

void vmp_host_get_counters(vmp_driver *driver, vmp_host_counters *out) {
  vmp_host *host = vmp_host_of(driver);
  pthread_mutex_lock(&host->lock);
  *out = host->counters;
  out->modelled_us = (double)host->clock_ns / 1000.0;
  out->overlong_waits += vmp_host_cover_open(host);
  pthread_mutex_unlock(&host->lock);
}

bool vmp_host_violation(vmp_driver *driver, uint64_t index, char *buffer, size_t size) {
  vmp_host *host = vmp_host_of(driver);
  pthread_mutex_lock(&host->lock);
  bool kept = index < host->num_sentences && index + VMP_HOST_KEPT_VIOLATIONS >= host->num_sentences;
  if (kept) (void)snprintf(buffer, size, "%s", host->violations[index % VMP_HOST_KEPT_VIOLATIONS]);
  pthread_mutex_unlock(&host->lock);
  return kept;
}

static uint64_t num_user_reservations(const vmp_host *host) {
  uint64_t count = 0;
  for (size_t i = 0; i < host->num_reservations; i++) count += !host->reservations[i]->internal;
  return count;
}

void vmp_host_get_census(vmp_driver *driver, vmp_host_census *out) {
  vmp_host *host = vmp_host_of(driver);
  memset(out, 0, sizeof *out);
  pthread_mutex_lock(&host->lock);
  vmp_host_reap_exports(host);
  out->handles = host->live_handles;
  out->mappings = host->live_mappings;
  out->reservations = num_user_reservations(host);
  out->events = host->live_events;
  out->streams = host->live_streams;
  out->fds = host->num_exports;
  for (int i = 0; i < host->num_devices; i++) {
    out->contexts_retained += host->contexts[i].retains;
    out->physical_bytes += host->devices[i].used_bytes;
  }
  out->mapped_bytes = host->mapped_bytes;
  out->reserved_bytes = host->reserved_bytes;
  pthread_mutex_unlock(&host->lock);
}

static void leaked_memory(vmp_host *host, vmp_report *report) {
  for (uint32_t i = 0; i < host->num_handle_records; i++) {
    const vmp_host_handle *handle = &host->handles[i];
    if (handle->bytes == 0) continue;
    vmp_report_fault(report, "handle %#llx of %llu bytes on device %d: %llu references, %llu mappings, %llu exports",
                     (unsigned long long)handle->value, (unsigned long long)handle->bytes, (int)handle->device,
                     (unsigned long long)handle->refs, (unsigned long long)handle->mappings,
                     (unsigned long long)handle->exports);
  }
  for (uint32_t i = 1; i < host->num_mapping_records; i++) {
    const vmp_host_mapping *mapping = &host->mappings[i];
    if (mapping->bytes == 0) continue;
    vmp_report_fault(report, "mapping of %llu bytes at %#llx", (unsigned long long)mapping->bytes,
                     (unsigned long long)mapping->base);
  }
  for (size_t i = 0; i < host->num_reservations; i++) {
    vmp_report_fault(report, "reservation of %llu bytes at %#llx%s", (unsigned long long)host->reservations[i]->bytes,
                     (unsigned long long)host->reservations[i]->base,
                     host->reservations[i]->internal ? " (cuMemAlloc)" : "");
  }
  for (size_t i = 0; i < host->num_exports; i++) {
    vmp_report_fault(report, "exported file descriptor of handle %#llx is still open",
                     (unsigned long long)host->handles[host->exports[i].handle].value);
  }
  for (size_t i = 0; i < host->num_pinned; i++) {
    vmp_report_fault(report, "pinned host memory of %zu bytes at %p", host->pinned[i].bytes, host->pinned[i].ptr);
  }
}

static void leaked_objects(vmp_host *host, vmp_report *report) {
  for (uint32_t i = 0; i < host->num_event_records; i++) {
    if (host->events[i].value == 0) continue;
    vmp_report_fault(report, "event %#llx of device %d", (unsigned long long)host->events[i].value,
                     host->events[i].device);
  }
  for (uint32_t i = 0; i < host->num_stream_records; i++) {
    const vmp_host_stream *stream = host->streams[i];
    if (stream == NULL || stream->value == 0 || stream->destroyed) continue;
    vmp_report_fault(report, "stream %#llx of device %d", (unsigned long long)stream->value, stream->device);
  }
  for (int i = 0; i < host->num_devices; i++) {
    if (host->contexts[i].retains == 0) continue;
    vmp_report_fault(report, "primary context of device %d: %llu retains", i,
                     (unsigned long long)host->contexts[i].retains);
  }
  for (size_t i = 0; i < host->num_graphs; i++) {
    if (host->graphs[i] != 0) vmp_report_fault(report, "graph %#llx", (unsigned long long)host->graphs[i]);
  }
}

size_t vmp_host_leaks(vmp_driver *driver, vmp_report *report) {
  vmp_host *host = vmp_host_of(driver);
  pthread_mutex_lock(&host->lock);
  vmp_host_reap_exports(host);
  size_t before = report->faults;
  leaked_memory(host, report);
  leaked_objects(host, report);
  size_t found = report->faults - before;
  pthread_mutex_unlock(&host->lock);
  return found;
}
