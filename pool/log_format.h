// log_format.h: the event log as bytes: what pool/log.c writes and the tools read. No code, no dependency.
//
// Owns: the layout of the file, the kinds of records and what their fields mean. Does not own: when records are written
// (log.h), how files are read (tools/log).
//
//     byte 0      header, VMP_LOG_HEADER_BYTES long; vmp_log_header at its start, zeros behind it
//     4096        record 0, record 1, ...   VMP_LOG_RECORD_BYTES each
//
// Everything is little-endian. Record number s ("sequence", from 0) lies at index s in a file that grows, at index
// s % capacity in a ring. `written` in the header counts the records ever written and is raised after a record is
// whole, so a file that ends in the middle (a crash, a kill, a full disk, a copy of a running log) is valid up to
// there: readers take the records below both `written` and the end of the file, and skip one whose own `sequence`
// differs.
//
// Rules
//   - Records are written under the pool's lock: their order is the order of events, `time_ns` never falls.
//   - A record whose kind a reader doesn't know is skipped. Kinds and flags are only added, fields keep their meaning
//     within a major version.
//   - STATE records (the flag) don't happen: they say what is true at a keyframe. A reader from record 0 may skip them;
//     one that begins at a keyframe forgets everything and starts with them.
//   - Ids (strings, stacks, chunks) are small numbers; 0 is none. A string or stack is written before its first use,
//   and
//     again in every keyframe, so a ring's tail can be read from its first whole keyframe.
#ifndef VMPOOL_POOL_LOG_FORMAT_H_
#define VMPOOL_POOL_LOG_FORMAT_H_

#include <stdint.h>

#define VMP_LOG_MAGIC "VMPLOG1\n"  // 8 bytes, without the terminator
#define VMP_LOG_VERSION_MAJOR 1u
#define VMP_LOG_VERSION_MINOR 0u
#define VMP_LOG_HEADER_BYTES 4096u
#define VMP_LOG_RECORD_BYTES 64u

// vmp_log_header.flags
#define VMP_LOG_RING 1u      // the file is a ring of `capacity` records
#define VMP_LOG_FINISHED 2u  // the log was ended in order; else its process may still run, or was killed

typedef struct vmp_log_header {
  char magic[8];
  uint16_t version_major, version_minor;
  uint32_t header_bytes, record_bytes, flags;
  uint64_t capacity;                               // records that the file has room for
  uint64_t written;                                // records written so far, those that a ring has overwritten included
  uint64_t keyframe;                               // sequence of the last whole keyframe's KEYFRAME record
  uint64_t dropped;                                // events that were lost: the disk was full, or host memory ran out
  uint64_t start_monotonic_ns, start_realtime_ns;  // the same moment on both clocks
  uint64_t granule_bytes, device_total_bytes;
  int64_t process;
  int32_t device;        // ordinal
  uint32_t unused;       // 0
  char library[16];      // version, as text
  char driver[16];       // "cuda", "host"
  char device_name[64];  // these texts are terminated, and cut where they are longer
  char pool_name[256];
} vmp_log_header;

// vmp_log_record: one event. Fields that a kind doesn't name are 0.
typedef struct vmp_log_record {
  uint8_t kind;     // vmp_log_kind
  uint8_t layer;    // 0 slab, 1 mid, 2 buddy; VMP_LOG_REGION: a page of a region; VMP_LOG_NONE
  uint8_t stream;   // index 0..63, see STREAM; VMP_LOG_NONE
  uint8_t flags;    // VMP_LOG_STATE and those that a kind names
  uint32_t thread;  // the kernel's number of the calling thread
  uint64_t sequence;
  uint64_t time_ns;  // CLOCK_MONOTONIC
  union {
    struct {
      uint64_t address;  // device address
      uint64_t bytes;
      uint64_t extra, value;  // what the kind says
      uint32_t tag;           // a string's id
      uint32_t stack;         // a stack's id
    } event;
    struct {
      uint32_t id;
      uint16_t part, parts;  // a long string or stack lies in several records, one behind the other
      char text[32];         // padded with zeros
    } string;
    struct {
      uint32_t id;
      uint16_t part, parts;
      uint64_t frames[4];  // return addresses, the innermost first; 0 ends
    } stack;
    struct {
      uint64_t live, mapped, parked, pending, spare;
    } sample;
  } as;
} vmp_log_record;

#define VMP_LOG_NONE 255u
#define VMP_LOG_REGION \
  3u  // ALLOC and FREE: a page was committed or decommitted; tag: the region's name. A page that several
      // regions share is committed in each, and counts as live in each (SAMPLE, KEYFRAME)

// vmp_log_record.flags
#define VMP_LOG_STATE 1u    // part of a keyframe
#define VMP_LOG_CREATED 2u  // MAP: the chunk is new; else it was spare
#define VMP_LOG_BEGIN 2u    // DEFRAGMENT: it begins; else it has ended

typedef enum vmp_log_kind {
  // What the others refer to.
  VMP_LOG_KEYFRAME = 1,  // extra: number of STATE records that follow, without a gap; address: live bytes,
                         // bytes: mapped bytes, value: live blocks
  VMP_LOG_STRING = 2,    // as.string
  VMP_LOG_STACK = 3,     // as.stack
  VMP_LOG_MODULE = 4,    // a loaded file that stacks point into: address and bytes where it lies, tag: its path,
                         // extra: what to take from a frame for the address within the file
  VMP_LOG_STREAM = 5,    // stream: index, extra: the driver's handle (0: the legacy default stream)
  VMP_LOG_RANGE = 6,     // a reservation: address, bytes; extra: where it begins in the pool's offset space
  VMP_LOG_SAMPLE = 7,    // as.sample: the pool's counters now, in bytes

  // Blocks.
  VMP_LOG_ALLOC = 16,  // address, bytes held, extra: bytes asked for, stream, layer, tag, stack. STATE: a live block;
                       // its stream is VMP_LOG_NONE where it isn't known
  VMP_LOG_FREE = 17,   // address, bytes, extra: bytes asked for, stream: the freeing one, layer; value: mask of streams
                       // that may still touch it
  VMP_LOG_OOM = 18,    // an allocation failed. bytes, extra: asked for, stream, layer; address: the status, negated;
                       // value: free bytes of the device as last seen
  VMP_LOG_USE = 19,    // vmp_record_use: address, stream
  VMP_LOG_MOVED = 20,  // vmp_realloc that moved no bytes: the FREE and the ALLOC that follow are one block, at `address`
                       // before. One that copies is an ALLOC and a FREE

  // Physical memory. A chunk's id may be used again after its RELEASE.
  VMP_LOG_MAP = 32,     // address, bytes, extra: chunk. STATE: a mapping as it is
  VMP_LOG_TAKE = 33,    // a parked chunk is mapped at a new place: address, bytes, extra: chunk, value: old address.
                        // RETIRE of the old place follows
  VMP_LOG_RETIRE = 34,  // an old mapping waits for work to finish: address, bytes, extra: chunk, value: mask of streams
  VMP_LOG_UNMAP = 35,   // the mapping is gone: address, bytes, extra: chunk
  VMP_LOG_RELEASE = 36,  // the chunk went back to the device: bytes, extra: chunk
  VMP_LOG_SHARE = 38,  // a chunk is mapped at one more address, and live at each: address, bytes, extra: chunk, value:
                       // another of its addresses (0 for STATE). Its memory counts once
  VMP_LOG_SPARE = 37,  // STATE only: a chunk that is mapped nowhere: bytes, extra: chunk

  // The pool as a whole.
  VMP_LOG_STEP = 48,      // vmp_pool_step: extra: steps so far, bytes: most live bytes within it
  VMP_LOG_MARK = 49,      // vmp_pool_mark: tag: the text
  VMP_LOG_SNAPSHOT = 50,  // a snapshot of this moment was written; tag: its path, or 0
  VMP_LOG_DEFRAGMENT =
      51,              // BEGIN: bytes: wanted. End: bytes: moved, extra: released, value: largest block without a call
  VMP_LOG_TRIM = 52,   // bytes: to be kept, extra: released
  VMP_LOG_LIMIT = 53,  // extra: vmp_limit, bytes: the new limit
  VMP_LOG_SUSPEND = 54,  // tag: of what was suspended, bytes: physical bytes given up
  VMP_LOG_RESUME = 55,   // tag, bytes
} vmp_log_kind;

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the log is written as it lies in memory, which must be little-endian"
#endif
#ifndef __cplusplus
_Static_assert(sizeof(vmp_log_record) == VMP_LOG_RECORD_BYTES, "a record is one cache line, without padding");
_Static_assert(sizeof(vmp_log_header) == 456, "the header has no hidden padding");
_Static_assert(sizeof(vmp_log_header) <= VMP_LOG_HEADER_BYTES, "the header fits its page");
#endif

#endif  // VMPOOL_POOL_LOG_FORMAT_H_
