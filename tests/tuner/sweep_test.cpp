#include "verbs/sweep.h"

#include <gtest/gtest.h>
#include <regex>

#include "moe/base/config_files.h"
#include "moe/search/variants.h"
#include "tests/base/scratch.h"
#include "tuner/strategy_report.h"
#include "tuner/sweep_report.h"
#include "verbs/printed.h"
#include "verbs/sweep_records.h"

namespace moe::tuner {
namespace {

class Sweep : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    profile_ = new Profile(find_profile("testbed-b"));
    grid_ = new Grid(find_grid("fsmoe-b"));
    for (const Schedule& schedule : schedules()) chosen_.push_back(&schedule);
    rows_ = new std::vector<SweepRow>(sweep({*profile_, *grid_, chosen_, {}, {}}));
  }
  static void TearDownTestSuite() {
    delete rows_;
    delete grid_;
    delete profile_;
  }
  static inline Profile* profile_;
  static inline Grid* grid_;
  static inline std::vector<const Schedule*> chosen_;
  static inline std::vector<SweepRow>* rows_;
};

TEST_F(Sweep, ARowALayerInGridOrder) {
  ASSERT_EQ(rows_->size(), grid_->layers.size());
  for (size_t i = 0; i < rows_->size(); ++i) {
    EXPECT_EQ((*rows_)[i].layer, grid_->layers[i].name);
    EXPECT_EQ((*rows_)[i].results.size(), chosen_.size());
  }
}

// Rows that share prices are tuned once: tuning them one by one gives the same.
TEST_F(Sweep, SharedRowsAreWhatTuningAloneGives) {
  LayerSearch search;
  for (size_t i = 0; i < rows_->size(); i += 97) {
    const SweepRow& row = (*rows_)[i];
    const LayerPricer pricer(*profile_, row.shape);
    for (const LayerResult& result : row.results) {
      const LayerResult alone = search.tune(find_schedule(result.schedule), pricer);
      EXPECT_EQ(alone.total_s(), result.total_s()) << row.layer << " " << result.schedule;
    }
  }
}

TEST_F(Sweep, SummaryIsTheMeanOfRatios) {
  for (const ScheduleSummary& s : summarise(*rows_, chosen_)) {
    double sum = 0;
    for (const SweepRow& row : *rows_) sum += row.find("tutel")->total_s() / row.find(s.schedule)->total_s();
    EXPECT_NEAR(s.speedup, sum / static_cast<double>(rows_->size()), 1e-12);
    EXPECT_LE(s.of_own, 1);
    EXPECT_LE(s.of_bound, s.of_own);
    int layers = 0;
    for (const auto& [degree, count] : s.degrees_forward) layers += count;
    EXPECT_EQ(layers, s.layers);
  }
}

// Of all schedules some price by derived rows, with a note for each: a layer counts once.
TEST_F(Sweep, ReportCountsNoMoreLayersThanThereAre) {
  const std::string report = sweep_report(*rows_, {*profile_, *grid_, chosen_, {}, {}});
  const std::regex counts(R"((\d+) layers)");
  const std::sregex_iterator first(report.begin(), report.end(), counts), last;
  EXPECT_NE(first, last) << report;
  for (auto count = first; count != last; ++count) EXPECT_LE(std::stoul((*count)[1]), rows_->size()) << report;
}

TEST_F(Sweep, StrategiesOfNoLayersAreNone) {
  const SweepRequest request{*profile_, *grid_, chosen_, {}, {}};
  EXPECT_TRUE(compare_strategies(request, *rows_, 0).empty());
  EXPECT_EQ(compare_strategies(request, *rows_, 2).size(), layer_strategies().size());
}

// Memory for the layer alone, for two experts a device, for four: of those that fit the fastest is chosen.
TEST(SweepMemory, DecidesHowManyExpertsADeviceHolds) {
  Profile profile = find_profile("testbed-b");
  for (CommRow& row : profile.comm) row.alpha_s *= row.op == Op::alltoall ? 1e3 : 1;  // so that packing pays
  const Schedule& packed = find_schedule("lina-packed");
  Grid grid = find_grid("fsmoe-b");
  grid.layers.resize(1);
  SweepRow row = sweep({profile, grid, {&packed}, {}, {true}}).front();
  ASSERT_EQ(row.results.size(), 1u) << row.reason;
  const int most = row.results.front().decision.packing;
  ASSERT_GE(most, 4);
  for (int packing = most / 2; packing >= 1; packing /= 2) {
    Decision decision;
    decision.packing = packing;
    const double enough = layer_memory(decided_case(row.shape, decision)).total();
    profile.memory_bytes = enough * 1.01;
    const SweepRow fitting = sweep({profile, grid, {&packed}, {}, {true}}).front();
    ASSERT_EQ(fitting.results.size(), 1u) << fitting.reason;
    const LayerResult& chosen = fitting.results.front();
    EXPECT_LE(chosen.decision.packing, packing);
    EXPECT_LE(chosen.memory.total(), profile.memory_bytes);
    const LayerPricer pricer(profile, row.shape, {true});
    LayerResult fastest = chosen;
    for (const LayerResult& one : tune_packings(LayerSearch().replay(packed, pricer), {}))
      if (one.decision.packing <= packing && one.total_s() < fastest.total_s()) fastest = one;
    EXPECT_NEAR(chosen.total_s(), fastest.total_s(), 1e-9 * fastest.total_s()) << packing;
  }
}

TEST(SweepMemory, RefusesAScheduleThatNeedsMore) {
  Profile profile = find_profile("testbed-b");
  Grid grid = find_grid("fsmoe-b");
  grid.layers.resize(1);
  const std::vector<const Schedule*> both{&find_schedule("tutel"), &find_schedule("ds-moe-replicated")};
  const LayerCase shape = sweep({profile, grid, both, {}, {}}).front().shape;
  profile.memory_bytes = layer_memory(shape).total() * 1.01;  // not for tokens that every MP rank dispatches
  const SweepRow row = sweep({profile, grid, both, {}, {}}).front();
  EXPECT_EQ(row.status, CaseStatus::ok);
  EXPECT_NE(row.find("tutel"), nullptr);
  EXPECT_EQ(row.find("ds-moe-replicated"), nullptr);
  ASSERT_TRUE(row.refused.contains("ds-moe-replicated"));
  EXPECT_TRUE(row.refused.at("ds-moe-replicated").starts_with("does not fit: needs ")) << row.refused.begin()->second;
}

TEST(Report, DegreeRanges) {
  EXPECT_EQ(degree_range({{3, 10}}), "3");
  EXPECT_EQ(degree_range({{1, 1}, {2, 5}, {8, 1}}), "1-8, median 2");
  EXPECT_EQ(degree_range({}), "-");
}

TEST(Report, PrintedSpeedups) {
  EXPECT_DOUBLE_EQ(printed_speedup("fsmoe-b", "testbed-b", "fsmoe"), 1.22);
  for (const char* cluster : {"testbed-a", "testbed-a-printed", "testbed-a-driver-experts"})
    EXPECT_DOUBLE_EQ(printed_speedup("fsmoe-a", cluster, "fsmoe"), 1.18) << cluster;
  EXPECT_EQ(printed_speedup("fsmoe-b", "testbed-b", "ds-moe"), 0);
}

// A grid's layers may be tuned on any cluster; what a paper prints is of its own.
TEST(Report, PrintedSpeedupsBelongToGridAndClusterTogether) {
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
TEST(Report, PrintedSpeedupsAreOfThePresetsAlone) {
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

TEST(Report, TheTablesPaperColumnIsOfTheCluster) {
  const Grid grid = find_grid("fsmoe-b");
  const std::vector<const Schedule*> chosen{&find_schedule("tutel"), &find_schedule("fsmoe")};
  for (const char* name : {"testbed-a", "testbed-b"}) {
    const Profile profile = find_profile(name);
    Grid few = grid;
    few.layers.resize(3);
    const SweepRequest request{profile, few, chosen, {}, {}};
    const std::string report = sweep_report(sweep(request), request);
    EXPECT_EQ(report.find("1.220x") != std::string::npos, profile.name == "testbed-b") << report;
  }
}

}  // namespace
}  // namespace moe::tuner
