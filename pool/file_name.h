// file_name.h: names of the files that a pool writes by itself: they hold the process and the pool, so that nothing is
// written over and every file says whose it is.
//
//     run.vmplog        -> run-12345-pool.vmplog, run-12345-pool-2.vmplog where that exists
//     DIR, "oom.json"   -> DIR/vmpool-12345-pool-oom.json, ...-oom-2.json
#ifndef VMPOOL_POOL_FILE_NAME_H_
#define VMPOOL_POOL_FILE_NAME_H_

#include "pool/pool.h"

#define VMP_FILE_NAME_BYTES 4096u

// vmp_file_stem writes "12345-pool" into `stem`: the process, and the pool's name with what is no letter, digit, dot or
// dash replaced, cut after 64 characters.
#define VMP_FILE_STEM_BYTES 96u
void vmp_file_stem(const vmp_pool *pool, char stem[VMP_FILE_STEM_BYTES]);

// vmp_file_name writes the name of a file that doesn't exist yet, from the one that an option gives.
// VMP_ERROR_INVALID_VALUE: it is too long. VMP_ERROR_IO: a thousand such files exist.
vmp_status vmp_file_name(const vmp_pool *pool, const char *given, char out[VMP_FILE_NAME_BYTES]);
// vmp_file_name_in does the same for a folder ("": the current one) and the end of the name.
vmp_status vmp_file_name_in(const vmp_pool *pool, const char *folder, const char *end, char out[VMP_FILE_NAME_BYTES]);

#endif  // VMPOOL_POOL_FILE_NAME_H_
