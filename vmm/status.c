// status.c: see status.h and error.h.
#include "vmm/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "vmm/error.h"

static _Thread_local vmp_error last_error;

const char *vmp_status_string(vmp_status status) {
  switch (status) {
#define VMP_STATUS_NAME(name, value, sentence) \
  case name:                                   \
    return #name;
    VMP_STATUS_LIST(VMP_STATUS_NAME)
#undef VMP_STATUS_NAME
  }
  return "VMP_UNKNOWN_STATUS";
}

const char *vmp_status_sentence(vmp_status status) {
  switch (status) {
#define VMP_STATUS_SENTENCE(name, value, sentence) \
  case name:                                       \
    return sentence;
    VMP_STATUS_LIST(VMP_STATUS_SENTENCE)
#undef VMP_STATUS_SENTENCE
  }
  return "an unknown status";
}

const vmp_error *vmp_last_error(void) { return &last_error; }

void vmp_restore_error(const vmp_error *error) { last_error = *error; }

void vmp_clear_error(void) { memset(&last_error, 0, sizeof last_error); }

static void set_error(vmp_status status, int code, const char *call, const char *format, va_list args) {
  last_error.status = status;
  last_error.driver_code = code;
  (void)snprintf(last_error.driver_call, sizeof last_error.driver_call, "%s", call);
  (void)vsnprintf(last_error.message, sizeof last_error.message, format, args);
}

vmp_status vmp_fail(vmp_status status, const char *format, ...) {
  va_list args;
  va_start(args, format);
  set_error(status, 0, "", format, args);
  va_end(args);
  return status;
}

vmp_status vmp_fail_driver(int code, const char *call, const char *format, ...) {
  vmp_status status = vmp_status_of_driver_code(code);
  va_list args;
  va_start(args, format);
  set_error(status, code, call, format, args);
  va_end(args);
  return status;
}

vmp_status vmp_fail_call(vmp_status status, int code, const char *call, const char *format, ...) {
  va_list args;
  va_start(args, format);
  set_error(status, code, call, format, args);
  va_end(args);
  return status;
}

int vmp_is_sticky(int code) {
  // The header calls these process-level inconsistent; 214 and 220 are treated as fatal too.
  return code == 214 || code == 220 || code == 226 || code == 700 || code == 702 || code == 709 || code == 710 ||
         (code >= 714 && code <= 719) || code == 721 || code == 911;
}

vmp_status vmp_status_of_driver_code(int code) {
  if (vmp_is_sticky(code)) return VMP_ERROR_STICKY;
  switch (code) {
    case 0:
      return VMP_OK;
    case 2:
      return VMP_ERROR_OUT_OF_MEMORY;
    case 4:
      return VMP_ERROR_DEINITIALIZED;
    case 34:
      return VMP_ERROR_STUB_DRIVER;
    case 100:
    case 101:
      return VMP_ERROR_NO_DEVICE;
    case 801:
      return VMP_ERROR_NOT_SUPPORTED;
    default:
      return code >= 900 && code <= 908 ? VMP_ERROR_CAPTURE : VMP_ERROR_DRIVER;
  }
}

void vmp_report_fault(vmp_report *report, const char *format, ...) {
  report->faults++;
  if (report->write == NULL) return;
  char sentence[512];
  va_list args;
  va_start(args, format);
  (void)vsnprintf(sentence, sizeof sentence, format, args);
  va_end(args);
  report->write(report->context, sentence);
}
