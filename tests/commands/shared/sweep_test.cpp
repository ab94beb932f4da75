#include "commands/shared/sweep.h"

#include <gtest/gtest.h>

#include "moe/search/layer_search.h"

namespace moe::commands {
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
    EXPECT_LE(s.own_bound_ratio, 1);
    EXPECT_LE(s.bound_ratio, s.own_bound_ratio);
    int layers = 0;
    for (const auto& [degree, count] : s.degrees_forward) layers += count;
    EXPECT_EQ(layers, s.layers);
  }
}

// A layer whose tutel is refused says nothing of a schedule's speedup over it.
TEST_F(Sweep, SpeedupsAreOfTheLayersThatTutelHas) {
  std::vector<SweepRow> rows(rows_->begin(), rows_->begin() + 8);
  const auto is_tutel = [](const LayerResult& result) { return result.schedule == "tutel"; };
  for (size_t i = 2; i < rows.size(); ++i) std::erase_if(rows[i].results, is_tutel);
  for (const ScheduleSummary& s : summarise(rows, chosen_)) {
    double sum = 0;
    for (size_t i = 0; i < 2; ++i) sum += rows[i].find("tutel")->total_s() / rows[i].find(s.schedule)->total_s();
    EXPECT_NEAR(s.speedup, sum / 2, 1e-12) << s.schedule;
    EXPECT_EQ(s.compared, 2);
    EXPECT_EQ(s.layers, s.schedule == "tutel" ? 2 : 8);
  }
  for (SweepRow& row : rows) std::erase_if(row.results, is_tutel);
  EXPECT_EQ(summarise(rows, chosen_).front().speedup, 0);
}

// Memory for the layer alone, for two experts a device, for four: of those that fit the fastest is chosen.
TEST(SweepMemory, DecidesHowManyExpertsADeviceHolds) {
  Profile profile = find_profile("testbed-b");
  for (CommRow& row : profile.comm) row.alpha_s *= row.op == Op::alltoall ? 1e3 : 1;  // so that packing pays
  const Schedule& packed = find_schedule("lina-packed");
  Grid grid = find_grid("fsmoe-b");
  grid.layers.resize(1);
  SweepRow row = sweep({profile, grid, {&packed}, {}, {true}}).front();
  ASSERT_EQ(row.results.size(), 1u);
  const int most = row.results.front().decision.packing;
  ASSERT_GE(most, 4);
  for (int packing = most / 2; packing >= 1; packing /= 2) {
    Decision decision;
    decision.packing = packing;
    const double enough = layer_memory(decided_case(row.shape, decision)).total();
    profile.memory_bytes = enough * 1.01;
    const SweepRow fitting = sweep({profile, grid, {&packed}, {}, {true}}).front();
    ASSERT_EQ(fitting.results.size(), 1u);
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
  EXPECT_TRUE(row.is_planned());
  EXPECT_NE(row.find("tutel"), nullptr);
  EXPECT_EQ(row.find("ds-moe-replicated"), nullptr);
  ASSERT_TRUE(row.refusals.contains("ds-moe-replicated"));
  EXPECT_EQ(row.refusals.at("ds-moe-replicated").kind, Refusal::Kind::too_large);
  EXPECT_TRUE(row.refusals.at("ds-moe-replicated").text().starts_with("does not fit: needs "));
}

TEST(SweepSummary, DegreeRanges) {
  EXPECT_EQ(degree_range({{3, 10}}), "3");
  EXPECT_EQ(degree_range({{1, 1}, {2, 5}, {8, 1}}), "1-8, median 2");
  EXPECT_EQ(degree_range({{1, 4}, {2, 1}, {3, 2}, {9, 3}}), "1-9, median 2.5");
  EXPECT_EQ(degree_range({}), "-");
}

}  // namespace
}  // namespace moe::commands
