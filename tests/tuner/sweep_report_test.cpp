#include "tuner/sweep_report.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <regex>
#include <sstream>

namespace moe::tuner {
namespace {

std::string report_of(const std::string& cluster, size_t layers, const std::vector<const Schedule*>& chosen) {
  const Profile profile = find_profile(cluster);
  Grid grid = find_grid("fsmoe-b");
  grid.layers.resize(std::min(layers, grid.layers.size()));
  const commands::SweepRequest request{profile, grid, chosen, {}, {}};
  return sweep_report(commands::sweep(request), request);
}

// Of all schedules some price by derived rows, with a note for each: a layer counts once.
TEST(SweepReport, CountsNoMoreLayersThanThereAre) {
  constexpr size_t kLayers = 100;
  std::vector<const Schedule*> all;
  for (const Schedule& schedule : schedules()) all.push_back(&schedule);
  const std::string report = report_of("testbed-b", kLayers, all);
  const std::regex counts(R"((\d+) layers)");
  const std::sregex_iterator first(report.begin(), report.end(), counts), last;
  EXPECT_NE(first, last) << report;
  for (auto count = first; count != last; ++count) EXPECT_LE(std::stoul((*count)[1]), kLayers) << report;
}

TEST(SweepReport, SaysWhatPricesWereDerivedFromAndKeepsItsWidth) {
  const std::string report = report_of("testbed-a", 5, {&find_schedule("tutel"), &find_schedule("monta-o3")});
  EXPECT_NE(report.find("  prices of 5 layers: derived\n    "), std::string::npos) << report;
  EXPECT_NE(report.find("    intra allreduce = reducescatter + allgather of the same volume\n"), std::string::npos)
      << report;
  EXPECT_NE(report.find("  prices of 5 layers: not priced\n    copies, for which the profile has no row\n"),
            std::string::npos)
      << report;
  std::istringstream lines(report);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 120u) << line;
}

TEST(SweepReport, ThePaperColumnIsOfTheCluster) {
  for (const char* cluster : {"testbed-a", "testbed-b"}) {
    const std::string report = report_of(cluster, 3, {&find_schedule("tutel"), &find_schedule("fsmoe")});
    EXPECT_EQ(report.find("1.220x") != std::string::npos, cluster == std::string_view("testbed-b")) << report;
  }
}

}  // namespace
}  // namespace moe::tuner
