#include "commands/shared/printed.h"

#include <gtest/gtest.h>

#include "moe/base/config_files.h"
#include "moe/schedule/schedule.h"
#include "tests/base/scratch.h"

namespace moe::commands {
namespace {

TEST(Printed, SpeedupsAreTheTables) {
  EXPECT_DOUBLE_EQ(printed_speedup("fsmoe-b", "testbed-b", "fsmoe"), 1.22);
  for (const char* cluster : {"testbed-a", "testbed-a-printed", "testbed-a-driver-experts"})
    EXPECT_DOUBLE_EQ(printed_speedup("fsmoe-a", cluster, "fsmoe"), 1.18) << cluster;
  EXPECT_EQ(printed_speedup("fsmoe-b", "testbed-b", "ds-moe"), 0);
}

// A grid's layers may be tuned on any cluster; what a paper prints is of its own.
TEST(Printed, SpeedupsBelongToGridAndClusterTogether) {
  int printed = 0;
  const auto count = [&](const Grid& grid, const Profile& cluster) {
    const bool of_a = grid.name == "fsmoe-a" && cluster.name.starts_with("testbed-a"),
               of_b = grid.name == "fsmoe-b" && cluster.name == "testbed-b";
    for (const Schedule& schedule : schedules())
      if (printed_speedup(grid, cluster, {}, schedule.name) > 0) {
        EXPECT_TRUE(of_a || of_b || !grid.sample_of.empty()) << grid.name << " on " << cluster.name;
        printed += grid.sample_of.empty() ? 1 : 0;
      }
  };
  for (const std::string& grid : config_names("grids"))
    for (const std::string& cluster : config_names("clusters")) count(find_grid(grid), find_profile(cluster));
  EXPECT_EQ(printed, 4 * 4) << "four schedules, on testbed B and by three readings of testbed A";
}

// A file that bears a preset's name is another one.
TEST(Printed, SpeedupsAreOfThePresetsAlone) {
  const Scratch folder;
  const auto copied = [&](const std::string& kind, const std::string& name) {
    const std::string path = folder.path(name + ".toml");
    std::filesystem::copy_file(find_config(kind, name), path);
    return path;
  };
  const Grid grid = find_grid("fsmoe-b"), other = read_grid(copied("grids", "fsmoe-b"));
  const Profile cluster = find_profile("testbed-b"), edited = find_profile(copied("clusters", "testbed-b"));
  EXPECT_GT(printed_speedup(grid, cluster, {}, "fsmoe"), 1);
  EXPECT_GT(printed_speedup(find_grid("fsmoe-30-b"), cluster, {}, "fsmoe"), 1);
  EXPECT_EQ(printed_speedup(other, cluster, {}, "fsmoe"), 0);
  EXPECT_EQ(printed_speedup(grid, edited, {}, "fsmoe"), 0);
  EXPECT_EQ(printed_speedup(grid, cluster, {.forward = 1}, "fsmoe"), 0) << "of degrees that the paper does not choose";
}

}  // namespace
}  // namespace moe::commands
