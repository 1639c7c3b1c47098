// file_name.c: see file_name.h.
#include "pool/file_name.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TRIES 1000

void vmp_file_stem(const vmp_pool *pool, char stem[VMP_FILE_STEM_BYTES]) {
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
  int used = snprintf(stem, VMP_FILE_STEM_BYTES, "%ld-", (long)getpid());
  const char *name = vmp_pool_name(pool);
  size_t length = strnlen(name, 64);
  for (size_t i = 0; i < length; i++) {
    // A name that begins with a dot is as good as any here: it comes behind the process.
    stem[(size_t)used + i] = strchr(plain, name[i]) != NULL && name[i] != '\0' ? name[i] : '_';
  }
  stem[(size_t)used + length] = '\0';
}

// find_free tries "HEADTAIL", "HEAD-2TAIL" and so on until one doesn't exist.
static vmp_status find_free(const char *head, int head_length, const char *stem, const char *tail,
                            char out[VMP_FILE_NAME_BYTES]) {
  for (int number = 1; number <= TRIES; number++) {
    char count[16] = "";
    if (number > 1) (void)snprintf(count, sizeof count, "-%d", number);
    int length = snprintf(out, VMP_FILE_NAME_BYTES, "%.*s%s%s%s", head_length, head, stem, count, tail);
    if (length >= (int)VMP_FILE_NAME_BYTES) {
      return vmp_fail(VMP_ERROR_INVALID_VALUE, "the name of a file is longer than %u bytes", VMP_FILE_NAME_BYTES - 1);
    }
    if (access(out, F_OK) != 0) return VMP_OK;
  }
  return vmp_fail(VMP_ERROR_IO, "\"%.200s\" and all %d names like it exist; remove old files", out, TRIES);
}

vmp_status vmp_file_name(const vmp_pool *pool, const char *given, char out[VMP_FILE_NAME_BYTES]) {
  char stem[VMP_FILE_STEM_BYTES + 1] = "-";
  vmp_file_stem(pool, stem + 1);
  const char *slash = strrchr(given, '/'), *base = slash == NULL ? given : slash + 1;
  const char *dot = strrchr(base, '.');
  if (dot == NULL || dot == base) dot = base + strlen(base);
  if (dot - given >= (ptrdiff_t)VMP_FILE_NAME_BYTES) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "the name of a file is longer than %u bytes", VMP_FILE_NAME_BYTES - 1);
  }
  return find_free(given, (int)(dot - given), stem, dot, out);
}

vmp_status vmp_file_name_in(const vmp_pool *pool, const char *folder, const char *end, char out[VMP_FILE_NAME_BYTES]) {
  char head[VMP_FILE_NAME_BYTES], stem[VMP_FILE_STEM_BYTES], tail_stem[VMP_FILE_STEM_BYTES + 32];
  vmp_file_stem(pool, stem);
  const char *dot = strrchr(end, '.');
  int end_length = dot == NULL ? (int)strlen(end) : (int)(dot - end);
  if (end_length > 24) end_length = 24;
  (void)snprintf(tail_stem, sizeof tail_stem, "vmpool-%s-%.*s", stem, end_length, end);
  int length = snprintf(head, sizeof head, "%s%s", folder, folder[0] == '\0' ? "" : "/");
  if (length >= (int)sizeof head) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "the name of a folder is longer than %u bytes", VMP_FILE_NAME_BYTES - 1);
  }
  return find_free(head, length, tail_stem, dot == NULL ? "" : dot, out);
}
