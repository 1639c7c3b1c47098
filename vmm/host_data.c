// host_data.c: the bytes of device memory, in one sparse memfd.
//
// A page that was never written is a hole of the file and reads as the handle's poison: a 64-bit pattern of its own,
// never zeros. Nothing is filled at create: the file system knows which pages exist (SEEK_DATA, SEEK_HOLE), so pages
// that the CPU wrote through an exposed view count as written too. Before a page gets its first partial write, the
// rest of it is filled with the poison. In exposed mode the CPU sees zeros where a page was never written.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "vmm/align.h"
#include "vmm/host_model.h"

#define PIECE_BYTES 65536u

// ---- the file ----

static bool read_file(const vmp_host *host, uint64_t at, unsigned char *dst, uint64_t bytes) {
  while (bytes != 0) {
    size_t part = bytes > (UINT64_C(1) << 30) ? (size_t)1 << 30 : (size_t)bytes;
    ssize_t got = pread(host->memfd, dst, part, (off_t)at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    dst += got;
    at += (uint64_t)got;
    bytes -= (uint64_t)got;
  }
  return true;
}

static bool write_file(const vmp_host *host, uint64_t at, const unsigned char *src, uint64_t bytes) {
  while (bytes != 0) {
    size_t part = bytes > (UINT64_C(1) << 30) ? (size_t)1 << 30 : (size_t)bytes;
    ssize_t put = pwrite(host->memfd, src, part, (off_t)at);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    src += put;
    at += (uint64_t)put;
    bytes -= (uint64_t)put;
  }
  return true;
}

// Where, at or after `at` and before `end`, the file has data (or a hole); `end` if nowhere.
static uint64_t seek_file(const vmp_host *host, uint64_t at, uint64_t end, int whence) {
  off_t found = lseek(host->memfd, (off_t)at, whence);
  if (found < 0 || (uint64_t)found > end) return end;
  return (uint64_t)found;
}

// ---- poison ----

static void poison(const vmp_host_handle *handle, uint64_t offset, unsigned char *dst, uint64_t bytes) {
  uint64_t pattern = vmp_host_mix(handle->value) | UINT64_C(0x8080808080808080);  // no byte is 0
  for (uint64_t i = 0; i < bytes; i++) dst[i] = (unsigned char)(pattern >> (8 * ((offset + i) & 7)));
}

bool vmp_host_data_read(vmp_host *host, const vmp_host_handle *handle, uint64_t offset, void *dst, uint64_t bytes,
                        bool *out_fresh) {
  unsigned char *to = dst;
  uint64_t at = handle->offset + offset;
  uint64_t end = at + bytes;
  while (at < end) {
    uint64_t data = handle->written ? seek_file(host, at, end, SEEK_DATA) : end;
    if (data > at) {
      poison(handle, at - handle->offset, to, data - at);
      if (out_fresh != NULL) *out_fresh = true;
      to += data - at;
      at = data;
      continue;
    }
    uint64_t hole = seek_file(host, at, end, SEEK_HOLE);
    if (!read_file(host, at, to, hole - at)) return false;
    to += hole - at;
    at = hole;
  }
  return true;
}

// Makes the page that holds `offset` exist, unless the write [offset, end) covers it whole.
static bool prepare_page(vmp_host *host, const vmp_host_handle *handle, uint64_t offset, uint64_t end) {
  uint64_t page = vmp_align_down(offset, VMP_HOST_PAGE_BYTES);
  if (offset == page && end - offset >= VMP_HOST_PAGE_BYTES) return true;
  uint64_t at = handle->offset + page;
  if (handle->written && seek_file(host, at, at + VMP_HOST_PAGE_BYTES, SEEK_DATA) == at) return true;
  unsigned char fresh[VMP_HOST_PAGE_BYTES];
  poison(handle, page, fresh, sizeof fresh);
  return write_file(host, at, fresh, sizeof fresh);
}

static bool prepare_ends(vmp_host *host, vmp_host_handle *handle, uint64_t offset, uint64_t bytes) {
  uint64_t end = offset + bytes;
  if (!prepare_page(host, handle, offset, end)) return false;
  uint64_t last = vmp_align_down(end - 1, VMP_HOST_PAGE_BYTES);
  bool same = last <= offset;
  bool prepared = same || prepare_page(host, handle, last, end);
  handle->written = true;
  return prepared;
}

bool vmp_host_data_write(vmp_host *host, vmp_host_handle *handle, uint64_t offset, const void *src, uint64_t bytes) {
  if (bytes == 0) return true;
  return prepare_ends(host, handle, offset, bytes) && write_file(host, handle->offset + offset, src, bytes);
}

bool vmp_host_data_fill(vmp_host *host, vmp_host_handle *handle, uint64_t offset, unsigned char value, uint64_t bytes) {
  if (bytes == 0) return true;
  if (!prepare_ends(host, handle, offset, bytes)) return false;
  unsigned char piece[PIECE_BYTES];
  memset(piece, value, bytes < sizeof piece ? (size_t)bytes : sizeof piece);
  while (bytes != 0) {
    uint64_t part = bytes < sizeof piece ? bytes : sizeof piece;
    if (!write_file(host, handle->offset + offset, piece, part)) return false;
    offset += part;
    bytes -= part;
  }
  return true;
}

// The bytes of a dead handle go back to the system. Its offsets are never used again, so a failure costs host
// memory until the driver closes and nothing else.
void vmp_host_discard(vmp_host *host, vmp_host_handle *handle) {
  (void)fallocate(host->memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)handle->offset, (off_t)handle->bytes);
  handle->written = false;
}
