// options_resolve.c: options whose value the device decides. See options.h.
#include <inttypes.h>

#include "pool/option_text.h"
#include "pool/options.h"
#include "pool/sizeclass.h"
#include "vmm/align.h"
#include "vmm/backing_ops.h"
#include "vmm/error.h"

#define RESERVE_FACTOR 16
#define STEP_BYTES 512

typedef struct device_facts {
  uint64_t granule_bytes;
  uint64_t basis_bytes;  // device memory, bounded
} device_facts;

static bool is_default(const vmp_config *config, vmp_option option) {
  return config->source[option] == VMP_SOURCE_DEFAULT;
}

static void adjust(vmp_config *config, vmp_option option, uint64_t *value, uint64_t better) {
  if (*value == better) return;
  *value = better;
  if (!is_default(config, option)) config->adjusted[option] = true;
}

// in_bytes turns "3granules" into bytes.
static vmp_status in_bytes(vmp_option option, uint64_t granule_bytes, uint64_t *value) {
  if (*value == UINT64_MAX || (*value & VMP_SIZE_IN_GRANULES) == 0) return VMP_OK;
  uint64_t granules = *value & ~VMP_SIZE_IN_GRANULES, bytes;
  if (!vmp_mul(granules, granule_bytes, &bytes) || bytes > VMP_SIZE_MAX) {
    return vmp_fail(VMP_ERROR_CONFIG,
                    "%s is %" PRIu64 " granules of %" PRIu64
                    " bytes, which is larger than any "
                    "address space",
                    vmp_option_key(option), granules, granule_bytes);
  }
  *value = bytes;
  return VMP_OK;
}

static vmp_status sizes_in_bytes(vmp_config *config, uint64_t granule_bytes) {
  struct {
    vmp_option option;
    uint64_t *value;
  } sizes[] = {
      {VMP_OPTION_reserve, &config->reserve},       {VMP_OPTION_chunk_max, &config->chunk_max},
      {VMP_OPTION_hard_limit, &config->hard_limit}, {VMP_OPTION_soft_limit, &config->soft_limit},
      {VMP_OPTION_growth, &config->growth},         {VMP_OPTION_slab_max, &config->slab_max},
      {VMP_OPTION_buddy_from, &config->buddy_from}, {VMP_OPTION_arena, &config->arena},
      {VMP_OPTION_quarantine, &config->quarantine}, {VMP_OPTION_log_ring, &config->log_ring},
      {VMP_OPTION_log_stacks, &config->log_stacks}, {VMP_OPTION_release_above, &config->release_above},
  };
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    vmp_status status = in_bytes(sizes[i].option, granule_bytes, sizes[i].value);
    if (status != VMP_OK) return status;
  }
  for (size_t i = 0; i < config->classes.count; i++) {
    vmp_status status = in_bytes(VMP_OPTION_classes, granule_bytes, &config->classes.values[i]);
    if (status != VMP_OK) return status;
  }
  return VMP_OK;
}

// resolve_classes rounds block sizes up to the step, and checks that they rise.
static vmp_status resolve_classes(vmp_config *config) {
  uint64_t before = 0;
  if (config->adaptive > VMP_MAX_SIZES) {
    return vmp_fail(VMP_ERROR_CONFIG, "adaptive is %" PRIu64 "; at most %d classes can be taken over", config->adaptive,
                    VMP_MAX_SIZES);
  }
  for (size_t i = 0; i < config->classes.count; i++) {
    uint64_t *value = &config->classes.values[i], whole;
    char given[32];
    (void)vmp_print_size(*value, given, sizeof given);
    if (!vmp_align_up(*value, STEP_BYTES, &whole) || whole > VMP_CLASS_MAX_BYTES) {
      return vmp_fail(VMP_ERROR_CONFIG, "classes names %s; a fixed block has at most 16GiB", given);
    }
    if (whole <= before) {
      return vmp_fail(VMP_ERROR_CONFIG,
                      "classes names %s behind a size that is not smaller; give rising sizes, each "
                      "once (they are rounded up to 512 bytes)",
                      given);
    }
    adjust(config, VMP_OPTION_classes, value, whole);
    before = whole;
  }
  return VMP_OK;
}

// resolve_edges: edges are ends of chunks of one granule. What was asked for by name wins over what a preset brought.
static vmp_status resolve_edges(vmp_config *config, uint64_t granule) {
  if (!config->edges || config->chunk_max <= granule) return VMP_OK;
  if (is_default(config, VMP_OPTION_chunk_max)) {
    config->chunk_max = granule;
  } else if (config->source[VMP_OPTION_edges] == VMP_SOURCE_PRESET) {
    config->edges = false;
    config->adjusted[VMP_OPTION_edges] = true;
  } else {
    return vmp_fail(VMP_ERROR_CONFIG,
                    "edges share chunks of one granule, but chunk_max is larger; drop one of the two, or set "
                    "chunk_max:1granule");
  }
  return VMP_OK;
}

// resolve_debug: guard slots need chunks that don't reach into them.
static vmp_status resolve_debug(vmp_config *config, const device_facts *device) {
  if (config->poison > UINT8_MAX) {
    return vmp_fail(VMP_ERROR_CONFIG, "poison is %" PRIu64 "; give a byte: 1 to 255, or 0 for none", config->poison);
  }
  if (!config->guard_slots) return VMP_OK;
  adjust(config, VMP_OPTION_chunk_max, &config->chunk_max, device->granule_bytes);
  config->no_map_ahead = true;
  return VMP_OK;
}

static vmp_status resolve_chunk_max(vmp_config *config, const device_facts *device) {
  uint64_t granule = device->granule_bytes;
  if (is_default(config, VMP_OPTION_chunk_max) && config->chunk_max < granule) config->chunk_max = granule;
  uint64_t chunk = config->chunk_max;
  if (chunk >= granule && vmp_is_power_of_two(chunk) && chunk <= VMP_OFFSET_CONGRUENCE) return VMP_OK;
  char given[32], low[32], high[32];
  uint64_t below = chunk <= granule ? granule : UINT64_C(1) << vmp_log2(chunk);
  if (below > VMP_OFFSET_CONGRUENCE) below = VMP_OFFSET_CONGRUENCE;
  uint64_t above = below == VMP_OFFSET_CONGRUENCE || chunk <= granule ? below : below * 2;
  (void)vmp_print_size(chunk, given, sizeof given);
  (void)vmp_print_size(below, low, sizeof low);
  (void)vmp_print_size(above, high, sizeof high);
  return vmp_fail(VMP_ERROR_CONFIG,
                  "chunk_max is %s; it must be a power of two of granules of %" PRIu64
                  " bytes, at "
                  "most 64GiB: %s%s%s would do",
                  given, granule, low, above == below ? "" : " or ", above == below ? "" : high);
}

static vmp_status resolve_layers(vmp_config *config, const device_facts *device) {
  uint64_t arena = config->arena;
  if (is_default(config, VMP_OPTION_arena)) arena = device->basis_bytes;
  if (arena < device->granule_bytes) arena = device->granule_bytes;
  if (!vmp_next_power_of_two(arena, &arena)) {
    return vmp_fail(VMP_ERROR_CONFIG, "arena is larger than any address space");
  }
  adjust(config, VMP_OPTION_arena, &config->arena, arena);

  uint64_t slab_max;
  if (!vmp_align_up(config->slab_max, STEP_BYTES, &slab_max) || slab_max > device->granule_bytes) {
    if (!is_default(config, VMP_OPTION_slab_max)) {
      char given[32], granule[32];
      (void)vmp_print_size(config->slab_max, given, sizeof given);
      (void)vmp_print_size(device->granule_bytes, granule, sizeof granule);
      return vmp_fail(VMP_ERROR_CONFIG, "slab_max is %s; a small object is at most one granule, %s", given, granule);
    }
    slab_max = device->granule_bytes;
  }
  adjust(config, VMP_OPTION_slab_max, &config->slab_max, slab_max);
  return VMP_OK;
}

static vmp_status resolve_growth(vmp_config *config, const device_facts *device) {
  uint64_t granule = device->granule_bytes;
  uint64_t growth = is_default(config, VMP_OPTION_growth) ? config->chunk_max : config->growth;
  if (config->no_map_ahead) growth = 0;
  if (!vmp_align_up(growth, granule, &growth)) return vmp_fail(VMP_ERROR_CONFIG, "growth is larger than any memory");
  adjust(config, VMP_OPTION_growth, &config->growth, growth);

  uint64_t reserve = config->reserve;
  if (is_default(config, VMP_OPTION_reserve)) reserve = RESERVE_FACTOR * device->basis_bytes;
  if (!vmp_align_up(reserve, config->chunk_max, &reserve)) {
    return vmp_fail(VMP_ERROR_CONFIG, "reserve is larger than any address space");
  }
  adjust(config, VMP_OPTION_reserve, &config->reserve, reserve);
  return VMP_OK;
}

static void resolve_limits(vmp_config *config, const device_facts *device) {
  if (config->hard_limit != UINT64_MAX) {
    uint64_t whole = vmp_align_down(config->hard_limit, device->granule_bytes);
    adjust(config, VMP_OPTION_hard_limit, &config->hard_limit, whole);
  }
  if (config->soft_limit != UINT64_MAX) {
    uint64_t whole = vmp_align_down(config->soft_limit, device->granule_bytes);
    adjust(config, VMP_OPTION_soft_limit, &config->soft_limit, whole);
  }
  if (is_default(config, VMP_OPTION_initial_fraction)) {
    config->initial_fraction = config->strategy == VMP_STRATEGY_STATIC ? 0.75 : 0;
  }
}

vmp_status vmp_config_resolve(vmp_config *config, uint64_t granule_bytes, uint64_t device_bytes) {
  if (!vmp_is_power_of_two(granule_bytes)) {
    return vmp_fail(VMP_ERROR_NOT_SUPPORTED, "the device's granularity is %" PRIu64 " bytes, which is no power of two",
                    granule_bytes);
  }
  device_facts device = {.granule_bytes = granule_bytes, .basis_bytes = device_bytes};
  if (device.basis_bytes > VMP_MEMORY_BASIS) device.basis_bytes = VMP_MEMORY_BASIS;
  if (device.basis_bytes < granule_bytes) device.basis_bytes = granule_bytes;
  vmp_status status = sizes_in_bytes(config, granule_bytes);
  if (status == VMP_OK) status = resolve_debug(config, &device);
  if (status == VMP_OK) status = resolve_chunk_max(config, &device);
  if (status == VMP_OK) status = resolve_edges(config, granule_bytes);
  if (status == VMP_OK) status = resolve_layers(config, &device);
  if (status == VMP_OK) status = resolve_classes(config);
  if (status == VMP_OK) status = resolve_growth(config, &device);
  if (status == VMP_OK) resolve_limits(config, &device);
  return status;
}
