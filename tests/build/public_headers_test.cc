// public_headers_test.cc: the public headers compile as C++ without a warning, and their initialisers work there.
#include "gtest/gtest.h"
#include "pool/vmpool.h"
#include "pool/vmpool_adapt.h"
#include "pool/vmpool_debug.h"
#include "pool/vmpool_host.h"
#include "pool/vmpool_pin.h"
#include "pool/vmpool_predict.h"
#include "pool/vmpool_stats.h"
#include "pool/vmpool_tag.h"

namespace {

TEST(PublicHeaders, InitialisersSetTheSizeAndNothingElse) {
  vmp_driver_options driver = VMP_DRIVER_OPTIONS_INIT;
  EXPECT_EQ(driver.struct_size, sizeof(driver));
  EXPECT_EQ(driver.kind, VMP_DRIVER_DEFAULT);
  EXPECT_EQ(driver.cuda_library, nullptr);
  vmp_pool_options pool = VMP_POOL_OPTIONS_INIT;
  EXPECT_EQ(pool.struct_size, sizeof(pool));
  vmp_host_work_counts_data counts = VMP_HOST_WORK_COUNTS_INIT;
  EXPECT_EQ(counts.struct_size, sizeof(counts));
  EXPECT_EQ(counts.queued, 0u);
  vmp_alloc_options with = VMP_ALLOC_OPTIONS_INIT;
  EXPECT_EQ(with.struct_size, sizeof(with));
  EXPECT_EQ(with.tag, 0u);
  vmp_class_proposal proposal = VMP_CLASS_PROPOSAL_INIT;
  EXPECT_EQ(proposal.struct_size, sizeof(proposal));
  EXPECT_EQ(proposal.num_classes, 0u);
  vmp_memory_stats memory = VMP_MEMORY_STATS_INIT;
  EXPECT_EQ(memory.struct_size, sizeof(memory));
  vmp_debug_stats debug = VMP_DEBUG_STATS_INIT;
  EXPECT_EQ(debug.struct_size, sizeof(debug));
  vmp_realloc_report report = VMP_REALLOC_REPORT_INIT;
  EXPECT_EQ(report.struct_size, sizeof(report));
  EXPECT_EQ(report.copied_bytes, 0u);
  vmp_suspend_options suspend = VMP_SUSPEND_OPTIONS_INIT;
  EXPECT_EQ(suspend.struct_size, sizeof(suspend));
  EXPECT_EQ(suspend.save, nullptr);
  vmp_tag_info tag = VMP_TAG_INFO_INIT;
  EXPECT_EQ(tag.struct_size, sizeof(tag));
}

TEST(PublicHeaders, TheVersionIsTheHeaders) {
  EXPECT_EQ(vmp_version(), VMP_VERSION_MAJOR * 1000000 + VMP_VERSION_MINOR * 1000 + VMP_VERSION_PATCH);
}

}  // namespace
