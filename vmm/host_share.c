// host_share.c: export and import of physical memory by file descriptor.
//
// An export is a pipe: the caller gets the write end, the driver keeps the read end. When the last copy of the
// caller's end is closed, wherever it was sent, the read end hangs up: that is how the driver learns of it, since
// an open descriptor keeps memory alive. An import knows the pipe by its inode. Importing works within the process
// that exported: another process has another simulated machine.
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vmm/host_model.h"

static bool is_hung_up(int fd) {
  struct pollfd query = {.fd = fd, .events = 0};
  return poll(&query, 1, 0) == 1 && (query.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
}

void vmp_host_reap_exports(vmp_host *host) {
  for (size_t i = 0; i < host->num_exports;) {
    if (!is_hung_up(host->exports[i].peer_fd)) {
      i++;
      continue;
    }
    vmp_host_handle *handle = &host->handles[host->exports[i].handle];
    (void)close(host->exports[i].peer_fd);
    host->exports[i] = host->exports[--host->num_exports];
    handle->exports--;
    vmp_host_drop_handle(host, handle);
  }
}

void vmp_host_share_close(vmp_host *host) {
  for (size_t i = 0; i < host->num_exports; i++) (void)close(host->exports[i].peer_fd);
  free(host->exports);
}

static int export_handle(vmp_host *host, vmp_host_handle *handle, int *out_fd) {
  int ends[2];
  struct stat identity;
  if (!vmp_host_grow(&host->exports, &host->cap_exports, host->num_exports + 1, sizeof host->exports[0]) ||
      pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    return VMP_CU_OUT_OF_MEMORY;
  }
  if (fstat(ends[0], &identity) != 0) {
    (void)close(ends[0]);
    (void)close(ends[1]);
    return VMP_CU_UNKNOWN;
  }
  host->exports[host->num_exports++] = (vmp_host_export){.handle = vmp_host_handle_index(host, handle),
                                                         .peer_fd = ends[0],
                                                         .inode = identity.st_ino,
                                                         .inode_device = identity.st_dev};
  handle->exports++;
  *out_fd = ends[1];
  return 0;
}

int vmp_host_op_mem_export(vmp_driver *driver, void *out_shareable, vmp_cu_handle value, int type,
                           unsigned long long flags) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_mem_export, VMP_HOST_SITE());
  if (code != 0) return code;
  vmp_host_handle *handle = vmp_host_find_handle(host, value);
  if (!host->any_vmm) {
    code = vmp_host_break(host, 16, VMP_CU_NOT_SUPPORTED, "cuMemExportToShareableHandle: no device supports VMM");
  } else if (out_shareable == NULL || handle == NULL || flags != 0) {
    code =
        vmp_host_break(host, 46, VMP_CU_INVALID_VALUE, "cuMemExportToShareableHandle: out %p, handle %#llx, flags %llu",
                       out_shareable, (unsigned long long)value, flags);
  } else if (type == 0 || (type & handle->prop.requested_handle_types) != type) {
    code = vmp_host_break(host, 46, VMP_CU_INVALID_VALUE,
                          "cuMemExportToShareableHandle: type %d was not requested at cuMemCreate (%d were)", type,
                          (int)handle->prop.requested_handle_types);
  } else {
    code = export_handle(host, handle, out_shareable);
  }
  return vmp_host_leave_out(host, code, out_shareable, sizeof(int));
}

static vmp_host_handle *find_export(vmp_host *host, int fd) {
  struct stat identity;
  if (fstat(fd, &identity) != 0) return NULL;
  for (size_t i = 0; i < host->num_exports; i++) {
    if (host->exports[i].inode == identity.st_ino && host->exports[i].inode_device == identity.st_dev) {
      return &host->handles[host->exports[i].handle];
    }
  }
  return NULL;
}

static int check_import(vmp_host *host, const vmp_cu_handle *out_handle, const void *shareable, int type) {
  if (!host->any_vmm) {
    return vmp_host_break(host, 16, VMP_CU_NOT_SUPPORTED, "cuMemImportFromShareableHandle: no device supports VMM");
  }
  if (type == VMP_CU_HANDLE_FABRIC) {
    return vmp_host_break(host, 48, VMP_CU_NOT_PERMITTED,
                          "cuMemImportFromShareableHandle: a fabric handle without a channel");
  }
  if (out_handle == NULL || shareable == NULL || type != VMP_CU_HANDLE_POSIX_FD) {
    return vmp_host_break(host, 47, VMP_CU_INVALID_VALUE,
                          "cuMemImportFromShareableHandle: out %p, shareable %p, type %d", (const void *)out_handle,
                          shareable, type);
  }
  return 0;
}

int vmp_host_op_mem_import(vmp_driver *driver, vmp_cu_handle *out_handle, void *shareable, int type) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_mem_import, VMP_HOST_SITE());
  if (code != 0) return code;
  code = check_import(host, out_handle, shareable, type);
  vmp_host_handle *handle = NULL;
  if (code == 0) {
    uintptr_t fd = (uintptr_t)shareable;
    if (fd <= INT32_MAX) handle = find_export(host, (int)fd);
    if (handle == NULL) {
      code = vmp_host_break(host, 47, VMP_CU_INVALID_VALUE,
                            "cuMemImportFromShareableHandle: %llu is no descriptor of this driver's memory",
                            (unsigned long long)fd);
    }
  }
  if (code == 0) {
    handle->refs++;
    *out_handle = handle->value;
  }
  return vmp_host_leave_out(host, code, out_handle, sizeof *out_handle);
}
