// conform.c: see conform.h.
#include "tests/conformance/conform.h"

#include <dlfcn.h>
#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define GRANULES 8u
#define GATE_SECONDS 5

// ---- the rig ----

void conform_map_all(conform *c) {
  gpu_map(&c->base, conform_place(c, 0), 1, c->one);
  gpu_map(&c->base, conform_place(c, 1), 1, c->two);
  gpu_map(&c->base, conform_place(c, 2), 2, c->three);
  gpu_grant(&c->base, conform_place(c, 0), 1);
  gpu_grant(&c->base, conform_place(c, 2), 2);
}

static vmp_host_options host_options(vmp_host_level level) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.level = level;
  options.num_devices = 12;
  options.devices[10].no_peers = 1;
  options.devices[11].no_vmm = 1;
  return options;
}

void conform_open(conform *c, vmp_host_level level) {
  memset(c, 0, sizeof *c);
  vmp_host_options options = host_options(level);
  c->host = gpu_rig_is_host();
  c->level = level;
  gpu_rig_setup_with(&c->base, &options);
  if (!c->base.entered) return;  // skipped or failed
  c->granule = c->base.granule;
  c->at = gpu_reserve(&c->base, GRANULES);
  c->one = gpu_create(&c->base, 1);
  c->two = gpu_create(&c->base, 1);
  c->three = gpu_create(&c->base, 2);
  c->spare = gpu_create(&c->base, 1);
  c->pair = gpu_create(&c->base, 2);
  // Not by the test's failures so far: a question that differed before must not keep the next rig from being built.
  if (c->at == 0 || c->one == 0 || c->two == 0 || c->three == 0 || c->spare == 0 || c->pair == 0) return;
  conform_map_all(c);
  c->driver = c->base.driver;
}

void conform_write(conform *c) {
  gpu_write(&c->base, conform_place(c, 0), c->granule, 1);
  gpu_write(&c->base, conform_place(c, 2), 2 * c->granule, 3);
}

void conform_expect(conform *c) {
  gpu_expect(&c->base, conform_place(c, 0), c->granule, 1);
  gpu_expect(&c->base, conform_place(c, 2), 2 * c->granule, 3);
}

void conform_close(conform *c) {
  if (c->driver != NULL) {
    gpu_unmap(&c->base, c->at, 4);
    const vmp_cu_handle handles[] = {c->one, c->two, c->three, c->spare, c->pair};
    for (size_t i = 0; i < sizeof handles / sizeof handles[0]; i++) gpu_release(&c->base, handles[i]);
    gpu_free(&c->base, c->at, GRANULES);
  }
  gpu_rig_teardown(&c->base);
}

// ---- one question ----

int conform_not_here(conform *c, const char *why) {
  c->why = why;
  return CONFORM_NOT_HERE;
}

static vmp_host_census census_of(const conform *c) {
  vmp_host_census census;
  memset(&census, 0, sizeof census);
  if (c->host) vmp_host_get_census(c->driver, &census);
  return census;
}

conform_answer conform_ask(conform *c, const conform_probe *probe) {
  if (probe->where != CONFORM_HERE) return conform_ask_alone(c, (size_t)(probe - conform_probes));
  conform_answer answer = {.code = 0};
  vmp_host_census before = census_of(c);
  c->why = NULL;
  answer.code = probe->ask(c);
  (void)snprintf(answer.why, sizeof answer.why, "%s", c->why != NULL ? c->why : "");
  vmp_host_census after = census_of(c);
  if (memcmp(&before, &after, sizeof before) != 0) VADD_FAILURE("the probe has left something behind");
  if (c->host && vmp_host_check(c->driver, &(vmp_report){0}) != 0) VADD_FAILURE("the model is not consistent any more");
  return answer;
}

// ---- for probes ----

int conform_other(conform *c, bool reachable) {
  int count = 0;
  if (vmp_drv_device_get_count(c->driver, &count) != VMP_CU_SUCCESS) return -1;
  for (int i = 0; i < count; i++) {
    int vmm = 0, there = 0, back = 0;
    if (i == c->base.device.ordinal) continue;
    if (vmp_drv_device_get_attribute(c->driver, &vmm, VMP_CU_ATTR_VMM_SUPPORTED, i) != VMP_CU_SUCCESS || vmm == 0) {
      continue;
    }
    (void)vmp_drv_device_can_access_peer(c->driver, &there, c->base.device.device, i);
    (void)vmp_drv_device_can_access_peer(c->driver, &back, i, c->base.device.device);
    if (reachable ? there != 0 && back != 0 : there == 0 && back == 0) return i;
  }
  return -1;
}

static void wait_at_gate(void *state) {
  struct timespec until;
  (void)clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += GATE_SECONDS;
  while (sem_timedwait(state, &until) != 0 && errno == EINTR) {
  }
}

int conform_gate_close(conform *c, conform_gate *gate) {
  *gate = (conform_gate){.driver = c->driver};
  sem_t *state = malloc(sizeof *state);
  if (state == NULL || sem_init(state, 0, 0) != 0) {
    free(state);
    return CONFORM_FAILED;
  }
  gate->state = state;
  int code = vmp_drv_stream_create(c->driver, &gate->stream, VMP_CU_STREAM_NON_BLOCKING);
  if (code == VMP_CU_SUCCESS) code = vmp_drv_launch_host_func(c->driver, gate->stream, wait_at_gate, state);
  return code;
}

void conform_gate_open(conform_gate *gate) { (void)sem_post(gate->state); }

void conform_gate_end(conform_gate *gate) {
  conform_gate_open(gate);
  VEXPECT_INT_EQ(vmp_drv_stream_synchronize(gate->driver, gate->stream), VMP_CU_SUCCESS);
  VEXPECT_INT_EQ(vmp_drv_stream_destroy(gate->driver, gate->stream), VMP_CU_SUCCESS);
  (void)sem_destroy(gate->state);
  free(gate->state);
}

bool conform_machine_begin(conform *c, conform_machine *machine, vmp_host_options *options) {
  *machine = (conform_machine){NULL, NULL};
  options->level = c->level;
  if (vmp_host_open(&machine->driver, options) != VMP_OK) return false;
  return vmp_drv_init(machine->driver, 0) == VMP_CU_SUCCESS &&
         vmp_drv_primary_ctx_retain(machine->driver, &machine->context, 0) == VMP_CU_SUCCESS &&
         vmp_drv_ctx_set_current(machine->driver, machine->context) == VMP_CU_SUCCESS;
}

void conform_machine_end(conform_machine *machine) { vmp_driver_close(machine->driver); }

bool conform_symbol(const char *name, void *out_function) {
  const char *path = vtest_option("library");
  void *library = dlopen(path != NULL ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  void *address = library != NULL ? dlsym(library, name) : NULL;
  memcpy(out_function, &address, sizeof address);
  return address != NULL;  // the library stays loaded: it may have begun to work
}
