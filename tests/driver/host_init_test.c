// Rules 1 to 9, 16, 59, 61, 62: cuInit, devices, attributes, contexts, granularity, peers, error texts, teardown.
#include <pthread.h>
#include <string.h>

#include "tests/driver/host_rig.h"

VTEST(HostRule, 01_NothingWorksBeforeInit) {
  host_rig rig = {NULL, NULL};
  VASSERT_OK(vmp_host_open(&rig.driver, NULL));
  int count = -7;
  VEXPECT_RULE(&rig, 1, VMP_CU_NOT_INITIALIZED, vmp_drv_device_get_count(rig.driver, &count));
  VEXPECT_INT_EQ(count, -7);
  vmp_cu_ptr ptr = 99;
  VEXPECT_RULE(&rig, 1, VMP_CU_NOT_INITIALIZED, vmp_drv_mem_address_reserve(rig.driver, &ptr, G, 0, 0, 0));
  VEXPECT_UINT_EQ(ptr, 99);
  VEXPECT_RULE(&rig, 1, VMP_CU_NOT_INITIALIZED, vmp_drv_ctx_synchronize(rig.driver));
  VEXPECT_RULE(&rig, 1, VMP_CU_NOT_INITIALIZED, vmp_drv_mem_release(rig.driver, 1));
  // The exceptions: version and error texts.
  int version = 0;
  VEXPECT_CUDA(vmp_drv_driver_get_version(rig.driver, &version));
  VEXPECT_INT_EQ(version, 13000);
  const char *name = NULL;
  VEXPECT_CUDA(vmp_drv_get_error_name(rig.driver, 2, &name));
  VEXPECT_STR_EQ(name, "CUDA_ERROR_OUT_OF_MEMORY");
  VASSERT_CUDA(vmp_drv_init(rig.driver, 0));
  VEXPECT_CUDA(vmp_drv_device_get_count(rig.driver, &count));
  VEXPECT_INT_EQ(count, 1);
  host_rig_teardown(&rig);
}

VTEST(HostRule, 02_InitTakesNoFlags) {
  host_rig rig = {NULL, NULL};
  VASSERT_OK(vmp_host_open(&rig.driver, NULL));
  VEXPECT_RULE(&rig, 2, VMP_CU_INVALID_VALUE, vmp_drv_init(rig.driver, 1));
  int count = 0;
  VEXPECT_CODE(vmp_drv_device_get_count(rig.driver, &count), VMP_CU_NOT_INITIALIZED);
  VEXPECT_CUDA(vmp_drv_init(rig.driver, 0));
  VEXPECT_CUDA(vmp_drv_init(rig.driver, 0));  // again is fine
  host_rig_teardown(&rig);
}

VTEST_F(HostRule, 03_DeviceOrdinals, host_rig) {
  vmp_cu_device device = -5;
  VEXPECT_RULE(f, 3, VMP_CU_INVALID_DEVICE, vmp_drv_device_get(f->driver, &device, -1));
  VEXPECT_RULE(f, 3, VMP_CU_INVALID_DEVICE, vmp_drv_device_get(f->driver, &device, 1));
  VEXPECT_INT_EQ(device, -5);
  VEXPECT_RULE(f, 3, VMP_CU_INVALID_VALUE, vmp_drv_device_get(f->driver, NULL, 0));
  VEXPECT_RULE(f, 3, VMP_CU_INVALID_VALUE, vmp_drv_device_get_count(f->driver, NULL));
  VEXPECT_CUDA(vmp_drv_device_get(f->driver, &device, 0));
  VEXPECT_INT_EQ(device, 0);
}

VTEST_F(HostRule, 04_Attributes, host_rig) {
  int value = -5;
  VEXPECT_RULE(f, 4, VMP_CU_INVALID_VALUE, vmp_drv_device_get_attribute(f->driver, &value, 0, 0));
  VEXPECT_RULE(f, 4, VMP_CU_INVALID_VALUE, vmp_drv_device_get_attribute(f->driver, &value, 99999, 0));
  VEXPECT_RULE(f, 4, VMP_CU_INVALID_VALUE, vmp_drv_device_get_attribute(f->driver, NULL, VMP_CU_ATTR_VMM_SUPPORTED, 0));
  VEXPECT_RULE(f, 4, VMP_CU_INVALID_DEVICE,
               vmp_drv_device_get_attribute(f->driver, &value, VMP_CU_ATTR_VMM_SUPPORTED, 1));
  size_t bytes = 7;
  VEXPECT_RULE(f, 4, VMP_CU_INVALID_DEVICE, vmp_drv_device_total_mem(f->driver, &bytes, -1));
  VEXPECT_UINT_EQ(bytes, 7);
  char name[4] = "abc";
  VEXPECT_RULE(f, 4, VMP_CU_INVALID_VALUE, vmp_drv_device_get_name(f->driver, name, 0, 0));
  VEXPECT_STR_EQ(name, "abc");
  VEXPECT_INT_EQ(value, -5);
  VEXPECT_CUDA(vmp_drv_device_get_attribute(f->driver, &value, VMP_CU_ATTR_VMM_SUPPORTED, 0));
  VEXPECT_INT_EQ(value, 1);
  VEXPECT_CUDA(vmp_drv_device_get_attribute(f->driver, &value, VMP_CU_ATTR_MULTICAST, 0));
  VEXPECT_INT_EQ(value, 0);  // unsupported is 0, no error
  VEXPECT_CUDA(vmp_drv_device_get_attribute(f->driver, &value, VMP_CU_ATTR_HOST_NUMA_ID, 0));
  VEXPECT_INT_EQ(value, -1);
  VEXPECT_CUDA(vmp_drv_device_total_mem(f->driver, &bytes, 0));
  VEXPECT_UINT_EQ(bytes, GIB(80));
}

VTEST_F(HostRule, 05_ContextIsNeeded, host_rig) {
  vmp_cu_ptr ptr = host_reserve(f, G);
  (void)host_map(f, ptr, G);
  vmp_cu_stream stream = host_stream(f, VMP_CU_STREAM_DEFAULT);
  vmp_cu_event event = host_event(f);
  VASSERT_CUDA(vmp_drv_ctx_set_current(f->driver, NULL));
  size_t free_bytes = 3;
  size_t total = 4;
  VEXPECT_RULE(f, 5, VMP_CU_INVALID_CONTEXT, vmp_drv_mem_get_info(f->driver, &free_bytes, &total));
  VEXPECT_UINT_EQ(free_bytes, 3);
  VEXPECT_UINT_EQ(total, 4);
  vmp_cu_stream other = NULL;
  VEXPECT_RULE(f, 5, VMP_CU_INVALID_CONTEXT, vmp_drv_stream_create(f->driver, &other, 0));
  VEXPECT_RULE(f, 5, VMP_CU_INVALID_CONTEXT, vmp_drv_stream_synchronize(f->driver, stream));
  VEXPECT_RULE(f, 5, VMP_CU_INVALID_CONTEXT, vmp_drv_stream_query(f->driver, stream));
  VEXPECT_RULE(f, 5, VMP_CU_INVALID_CONTEXT, vmp_drv_stream_destroy(f->driver, stream));
  vmp_cu_event new_event = NULL;
  VEXPECT_RULE(f, 5, VMP_CU_INVALID_CONTEXT, vmp_drv_event_create(f->driver, &new_event, 0));
  VEXPECT_RULE(f, 5, VMP_CU_INVALID_CONTEXT, vmp_drv_event_record(f->driver, event, stream));
  VEXPECT_RULE(f, 5, VMP_CU_INVALID_CONTEXT, vmp_drv_event_query(f->driver, event));
  VEXPECT_RULE(f, 5, VMP_CU_INVALID_CONTEXT, vmp_drv_stream_wait_event(f->driver, stream, event, 0));
  VEXPECT_RULE(f, 5, VMP_CU_INVALID_CONTEXT, vmp_drv_ctx_synchronize(f->driver));
  char byte = 1;
  VEXPECT_RULE(f, 5, VMP_CU_INVALID_CONTEXT, vmp_drv_memcpy_htod(f->driver, ptr, &byte, 1));
  VEXPECT_RULE(f, 5, VMP_CU_INVALID_CONTEXT, vmp_drv_memcpy_dtoh_async(f->driver, &byte, ptr, 1, stream));
  VEXPECT_RULE(f, 5, VMP_CU_INVALID_CONTEXT, vmp_drv_memset_d8(f->driver, ptr, 1, 1));
  vmp_cu_ptr block = 0;
  VEXPECT_RULE(f, 5, VMP_CU_INVALID_CONTEXT, vmp_drv_mem_alloc(f->driver, &block, 1));
  // VMM calls need none.
  VEXPECT_CUDA(vmp_drv_mem_unmap(f->driver, ptr, G));
  VEXPECT_CUDA(vmp_drv_mem_address_free(f->driver, ptr, G));
}

static void *look_from_another_thread(void *rig_pointer) {
  host_rig *rig = rig_pointer;
  vmp_cu_context context = rig->context;
  VEXPECT_CUDA(vmp_drv_ctx_get_current(rig->driver, &context));
  VEXPECT_NULL(context);
  VEXPECT_CODE(vmp_drv_ctx_synchronize(rig->driver), VMP_CU_INVALID_CONTEXT);
  return NULL;
}

VTEST_F(HostRule, 05_ANewThreadHasNoContext, host_rig) {
  pthread_t thread;
  VASSERT_INT_EQ(pthread_create(&thread, NULL, look_from_another_thread, f), 0);
  VASSERT_INT_EQ(pthread_join(thread, NULL), 0);
  vmp_cu_context context = NULL;
  VEXPECT_CUDA(vmp_drv_ctx_get_current(f->driver, &context));
  VEXPECT_PTR_EQ(context, f->context);
}

VTEST_F(HostRule, 06_ReleaseAndPopNeedSomething, host_rig) {
  vmp_cu_context context = NULL;
  VASSERT_CUDA(vmp_drv_primary_ctx_retain(f->driver, &context, 0));
  VEXPECT_PTR_EQ(context, f->context);
  VEXPECT_CUDA(vmp_drv_primary_ctx_release(f->driver, 0));
  VEXPECT_CUDA(vmp_drv_primary_ctx_release(f->driver, 0));
  VEXPECT_RULE(f, 6, VMP_CU_INVALID_CONTEXT, vmp_drv_primary_ctx_release(f->driver, 0));
  VEXPECT_RULE(f, 6, VMP_CU_INVALID_DEVICE, vmp_drv_primary_ctx_release(f->driver, 1));
  VEXPECT_RULE(f, 6, VMP_CU_INVALID_DEVICE, vmp_drv_primary_ctx_retain(f->driver, &context, 1));
  VEXPECT_CUDA(vmp_drv_ctx_pop_current(f->driver, &context));
  VEXPECT_PTR_EQ(context, f->context);
  VEXPECT_RULE(f, 6, VMP_CU_INVALID_CONTEXT, vmp_drv_ctx_pop_current(f->driver, &context));
}

VTEST_F(HostContext, IsAStack, host_rig) {
  vmp_cu_context context = NULL;
  VASSERT_CUDA(vmp_drv_ctx_push_current(f->driver, f->context));
  VASSERT_CUDA(vmp_drv_ctx_set_current(f->driver, NULL));  // empties the top only
  VASSERT_CUDA(vmp_drv_ctx_get_current(f->driver, &context));
  VEXPECT_PTR_EQ(context, f->context);
  vmp_cu_device device = -1;
  VEXPECT_CUDA(vmp_drv_ctx_get_device(f->driver, &device));
  VEXPECT_INT_EQ(device, 0);
  VEXPECT_CUDA(vmp_drv_ctx_pop_current(f->driver, NULL));
  VEXPECT_RULE(f, 5, VMP_CU_INVALID_CONTEXT, vmp_drv_ctx_get_device(f->driver, &device));
  VEXPECT_RULE(f, 7, VMP_CU_INVALID_CONTEXT, vmp_drv_ctx_push_current(f->driver, NULL));
}

VTEST_F(HostRule, 07_ResetContext, host_rig) {
  vmp_cu_ptr ptr = host_reserve(f, G);
  (void)host_map(f, ptr, G);
  char text[8] = "kept";
  VASSERT_CUDA(vmp_drv_memcpy_htod(f->driver, ptr, text, sizeof text));
  vmp_cu_ptr block = 0;
  VASSERT_CUDA(vmp_drv_mem_alloc(f->driver, &block, 100));
  vmp_cu_event event = host_event(f);
  VASSERT_CUDA(vmp_drv_primary_ctx_reset(f->driver, 0));
  vmp_cu_context context = NULL;
  VEXPECT_CUDA(vmp_drv_ctx_get_current(f->driver, &context));
  VEXPECT_PTR_EQ(context, f->context);  // still there
  VEXPECT_RULE(f, 7, VMP_CU_CONTEXT_IS_DESTROYED, vmp_drv_mem_alloc(f->driver, &block, 100));
  VEXPECT_RULE(f, 7, VMP_CU_CONTEXT_IS_DESTROYED, vmp_drv_event_query(f->driver, event));
  VEXPECT_RULE(f, 7, VMP_CU_CONTEXT_IS_DESTROYED, vmp_drv_ctx_synchronize(f->driver));
  VEXPECT_RULE(f, 7, VMP_CU_CONTEXT_IS_DESTROYED, vmp_drv_ctx_push_current(f->driver, f->context));
  VASSERT_CUDA(vmp_drv_primary_ctx_retain(f->driver, &context, 0));
  VEXPECT_PTR_EQ(context, f->context);  // the same value as before
  // VMM memory, its mappings and its bytes outlive the reset; events and cuMemAlloc memory don't.
  memset(text, 0, sizeof text);
  VEXPECT_CUDA(vmp_drv_memcpy_dtoh(f->driver, text, ptr, sizeof text));
  VEXPECT_STR_EQ(text, "kept");
  VEXPECT_RULE(f, 50, VMP_CU_INVALID_HANDLE, vmp_drv_event_query(f->driver, event));
  VEXPECT_RULE(f, 5, VMP_CU_INVALID_VALUE, vmp_drv_mem_free(f->driver, block));
  VEXPECT_UINT_EQ(host_census(f).handles, 1);
  VEXPECT_UINT_EQ(host_census(f).events, 0);
}

VTEST_F(HostRule, 08_GranularityArguments, host_rig) {
  vmp_cu_mem_prop prop = host_prop(0);
  size_t bytes = 5;
  VEXPECT_RULE(f, 8, VMP_CU_INVALID_VALUE, vmp_drv_mem_get_allocation_granularity(f->driver, NULL, &prop, 0));
  VEXPECT_RULE(f, 8, VMP_CU_INVALID_VALUE, vmp_drv_mem_get_allocation_granularity(f->driver, &bytes, &prop, 2));
  VEXPECT_RULE(f, 8, VMP_CU_INVALID_VALUE, vmp_drv_mem_get_allocation_granularity(f->driver, &bytes, &prop, -1));
  VEXPECT_UINT_EQ(bytes, 5);
  VEXPECT_CUDA(vmp_drv_mem_get_allocation_granularity(f->driver, &bytes, &prop, VMP_CU_GRANULARITY_MINIMUM));
  VEXPECT_UINT_EQ(bytes, MIB(2));
  VEXPECT_CUDA(vmp_drv_mem_get_allocation_granularity(f->driver, &bytes, &prop, VMP_CU_GRANULARITY_RECOMMENDED));
  VEXPECT_UINT_EQ(bytes, MIB(2));
}

VTEST_F(HostRule, 09_GranularityOfANonsenseProperty, host_rig) {
  size_t bytes = 5;
  vmp_cu_mem_prop prop = host_prop(0);
  VEXPECT_RULE(f, 9, VMP_CU_INVALID_VALUE, vmp_drv_mem_get_allocation_granularity(f->driver, &bytes, NULL, 0));
  prop.type = 0;
  VEXPECT_RULE(f, 9, VMP_CU_INVALID_VALUE, vmp_drv_mem_get_allocation_granularity(f->driver, &bytes, &prop, 0));
  prop = host_prop(1);
  VEXPECT_RULE(f, 9, VMP_CU_INVALID_VALUE, vmp_drv_mem_get_allocation_granularity(f->driver, &bytes, &prop, 0));
  prop = host_prop(0);
  prop.location.type = VMP_CU_LOCATION_INVALID;
  VEXPECT_RULE(f, 9, VMP_CU_INVALID_VALUE, vmp_drv_mem_get_allocation_granularity(f->driver, &bytes, &prop, 0));
  VEXPECT_UINT_EQ(bytes, 5);
}

VTEST(HostRule, 09_GranularityOfANonsensePropertyIsLint) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.level = VMP_HOST_LINT;
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  size_t bytes = 0;
  vmp_cu_mem_prop prop = host_prop(7);
  VEXPECT_CUDA(vmp_drv_mem_get_allocation_granularity(rig.driver, &bytes, &prop, 0));
  VEXPECT_UINT_EQ(bytes, MIB(2));
  VEXPECT_UINT_EQ(host_counters(&rig).lint, 1);
  VEXPECT_UINT_EQ(host_counters(&rig).violations, 0);
  host_rig_teardown(&rig);
}

VTEST(HostRule, 16_NoVmmSupport) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.num_devices = 1;
  options.devices[0].no_vmm = 1;
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  vmp_driver *driver = rig.driver;
  int value = 7;
  VEXPECT_CUDA(vmp_drv_device_get_attribute(driver, &value, VMP_CU_ATTR_VMM_SUPPORTED, 0));
  VEXPECT_INT_EQ(value, 0);
  vmp_cu_ptr ptr = 0;
  vmp_cu_handle handle = 0;
  size_t bytes = 0;
  unsigned long long flags = 0;
  vmp_cu_mem_prop prop = host_prop(0);
  vmp_cu_access_desc grant = host_grant(0, 3);
  VEXPECT_RULE(&rig, 16, VMP_CU_NOT_SUPPORTED, vmp_drv_mem_address_reserve(driver, &ptr, G, 0, 0, 0));
  VEXPECT_RULE(&rig, 16, VMP_CU_NOT_SUPPORTED, vmp_drv_mem_address_free(driver, G, G));
  VEXPECT_RULE(&rig, 16, VMP_CU_NOT_SUPPORTED, vmp_drv_mem_create(driver, &handle, G, &prop, 0));
  VEXPECT_RULE(&rig, 16, VMP_CU_NOT_SUPPORTED, vmp_drv_mem_release(driver, 1));
  VEXPECT_RULE(&rig, 16, VMP_CU_NOT_SUPPORTED, vmp_drv_mem_map(driver, G, G, 0, 1, 0));
  VEXPECT_RULE(&rig, 16, VMP_CU_NOT_SUPPORTED, vmp_drv_mem_unmap(driver, G, G));
  VEXPECT_RULE(&rig, 16, VMP_CU_NOT_SUPPORTED, vmp_drv_mem_set_access(driver, G, G, &grant, 1));
  VEXPECT_RULE(&rig, 16, VMP_CU_NOT_SUPPORTED, vmp_drv_mem_get_access(driver, &flags, &grant.location, G));
  VEXPECT_RULE(&rig, 16, VMP_CU_NOT_SUPPORTED, vmp_drv_mem_get_allocation_granularity(driver, &bytes, &prop, 0));
  VEXPECT_RULE(&rig, 16, VMP_CU_NOT_SUPPORTED, vmp_drv_mem_retain_allocation_handle(driver, &handle, &ptr));
  VEXPECT_RULE(&rig, 16, VMP_CU_NOT_SUPPORTED, vmp_drv_mem_get_allocation_properties(driver, &prop, 1));
  VEXPECT_RULE(&rig, 16, VMP_CU_NOT_SUPPORTED, vmp_drv_mem_export(driver, &value, 1, 1, 0));
  VEXPECT_RULE(&rig, 16, VMP_CU_NOT_SUPPORTED, vmp_drv_mem_import(driver, &handle, &ptr, 1));
  host_rig_teardown(&rig);
}

VTEST(HostRule, 16_OneDeviceOfTwoWithoutVmm) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.num_devices = 2;
  options.devices[1].no_vmm = 1;
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  vmp_cu_handle handle = 0;
  size_t bytes = 0;
  vmp_cu_mem_prop prop = host_prop(1);
  VEXPECT_RULE(&rig, 16, VMP_CU_NOT_SUPPORTED, vmp_drv_mem_create(rig.driver, &handle, G, &prop, 0));
  VEXPECT_RULE(&rig, 16, VMP_CU_NOT_SUPPORTED, vmp_drv_mem_get_allocation_granularity(rig.driver, &bytes, &prop, 0));
  vmp_cu_ptr ptr = host_reserve(&rig, G);
  (void)host_map(&rig, ptr, G);
  vmp_cu_access_desc grant = host_grant(1, 3);
  VEXPECT_RULE(&rig, 16, VMP_CU_NOT_SUPPORTED, vmp_drv_mem_set_access(rig.driver, ptr, G, &grant, 1));
  host_rig_teardown(&rig);
}

VTEST(HostRule, 59_PeerAccess) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.num_devices = 11;
  options.devices[10].no_peers = 1;
  options.devices[9].unreachable = 1;  // device 0
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  vmp_cu_context contexts[11];
  for (int i = 0; i < 11; i++) VASSERT_CUDA(vmp_drv_primary_ctx_retain(rig.driver, &contexts[i], i));
  int can = -1;
  VEXPECT_CUDA(vmp_drv_device_can_access_peer(rig.driver, &can, 0, 1));
  VEXPECT_INT_EQ(can, 1);
  VEXPECT_CUDA(vmp_drv_device_can_access_peer(rig.driver, &can, 0, 10));
  VEXPECT_INT_EQ(can, 0);
  VEXPECT_CUDA(vmp_drv_device_can_access_peer(rig.driver, &can, 0, 9));
  VEXPECT_INT_EQ(can, 0);
  VEXPECT_CUDA(vmp_drv_device_can_access_peer(rig.driver, &can, 1, 9));
  VEXPECT_INT_EQ(can, 1);
  VEXPECT_CUDA(vmp_drv_device_can_access_peer(rig.driver, &can, 0, 0));
  VEXPECT_INT_EQ(can, 0);
  VEXPECT_RULE(&rig, 59, VMP_CU_PEER_ACCESS_UNSUPPORTED, vmp_drv_ctx_enable_peer_access(rig.driver, contexts[10], 0));
  VEXPECT_RULE(&rig, 59, VMP_CU_PEER_ACCESS_UNSUPPORTED, vmp_drv_ctx_enable_peer_access(rig.driver, contexts[9], 0));
  VEXPECT_RULE(&rig, 59, VMP_CU_PEER_ACCESS_UNSUPPORTED, vmp_drv_ctx_enable_peer_access(rig.driver, contexts[0], 0));
  VEXPECT_RULE(&rig, 59, VMP_CU_INVALID_VALUE, vmp_drv_ctx_enable_peer_access(rig.driver, contexts[1], 1));
  VEXPECT_RULE(&rig, 59, VMP_CU_PEER_ACCESS_NOT_ENABLED, vmp_drv_ctx_disable_peer_access(rig.driver, contexts[1]));
  for (int i = 1; i <= 8; i++) VEXPECT_CUDA(vmp_drv_ctx_enable_peer_access(rig.driver, contexts[i], 0));
  VEXPECT_RULE(&rig, 59, VMP_CU_PEER_ACCESS_ALREADY_ENABLED,
               vmp_drv_ctx_enable_peer_access(rig.driver, contexts[3], 0));
  host_rig_teardown(&rig);
}

VTEST(HostRule, 59_AtMostEightPeers) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.num_devices = 10;
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  vmp_cu_context contexts[10];
  for (int i = 1; i < 10; i++) {
    VASSERT_CUDA(vmp_drv_primary_ctx_retain(rig.driver, &contexts[i], i));
    if (i <= 8) VEXPECT_CUDA(vmp_drv_ctx_enable_peer_access(rig.driver, contexts[i], 0));
  }
  VEXPECT_RULE(&rig, 59, VMP_CU_TOO_MANY_PEERS, vmp_drv_ctx_enable_peer_access(rig.driver, contexts[9], 0));
  VEXPECT_CUDA(vmp_drv_ctx_disable_peer_access(rig.driver, contexts[4]));
  VEXPECT_CUDA(vmp_drv_ctx_enable_peer_access(rig.driver, contexts[9], 0));
  host_rig_teardown(&rig);
}

VTEST_F(HostRule, 61_UnknownErrorCode, host_rig) {
  const char *text = "before";
  VEXPECT_RULE(f, 61, VMP_CU_INVALID_VALUE, vmp_drv_get_error_name(f->driver, 31337, &text));
  VEXPECT_NULL(text);
  text = "before";
  VEXPECT_RULE(f, 61, VMP_CU_INVALID_VALUE, vmp_drv_get_error_string(f->driver, -1, &text));
  VEXPECT_NULL(text);
  VEXPECT_CUDA(vmp_drv_get_error_string(f->driver, 700, &text));
  VEXPECT_STR_EQ(text, "an illegal memory access was encountered");
  VEXPECT_CUDA(vmp_drv_get_error_name(f->driver, 0, &text));
  VEXPECT_STR_EQ(text, "CUDA_SUCCESS");
}

VTEST_F(HostRule, 62_TeardownAnswersDeinitialized, host_rig) {
  vmp_cu_ptr ptr = host_reserve(f, G);
  vmp_host_deinitialize(f->driver);
  VEXPECT_RULE(f, -1, VMP_CU_DEINITIALIZED, vmp_drv_mem_address_free(f->driver, ptr, G));
  VEXPECT_RULE(f, -1, VMP_CU_DEINITIALIZED, vmp_drv_ctx_synchronize(f->driver));
  VEXPECT_RULE(f, -1, VMP_CU_DEINITIALIZED, vmp_drv_init(f->driver, 0));
}
