// What a task row prices: its terms, at whatever share of the rows a chunk has, in every flow.
#include <algorithm>
#include <gtest/gtest.h>

#include "moe/base/random.h"
#include "moe/prices/pricer.h"
#include "tests/prices/random_layer.h"
#include "tests/schedule/any_decision.h"

namespace moe {
namespace {

using random_layer::random_layer;

// A row of every computation, by random seconds a term.
void add_task_rows(Profile& profile, const LayerCase& shape, uint64_t seed) {
  uint64_t drawn = 0;
  for (size_t k = 0; k < kTaskKinds; ++k)
    for (const Phase phase : {Phase::forward, Phase::backward}) {
      const auto kind = static_cast<TaskKind>(k);
      if (!has_terms(kind)) continue;
      TaskRow row{.name = task_row_name(kind, shape), .phase = phase, .dtype = shape.layer.dtype};
      for (size_t t = 0; t < kTerms; ++t) {
        row.seconds_per_term[t] = 1e-9 * random_uniform(seed, random_stream_id("task rows"), drawn++);
        row.min[t] = 0;
        row.max[t] = 1e18;
      }
      profile.tasks.push_back(row);
    }
}

const TaskRow& row_of(const Profile& profile, const std::string& name, Phase phase) {
  return *std::ranges::find_if(profile.tasks,
                               [&](const TaskRow& row) { return row.name == name && row.phase == phase; });
}

TEST(TaskRows, PriceTheTermsOfAChunksShare) {
  int computations = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    auto layer = random_layer(seed);
    add_task_rows(layer.profile, layer.shape, seed);
    const LayerPricer pricer(layer.profile, layer.shape);
    for (const Schedule& schedule : schedules()) {
      if (!any_decision::fits(schedule, layer.shape)) continue;
      const Plan plan = build_plan(schedule, layer.shape, any_decision::any_decision(schedule, layer.shape, seed));
      const std::vector<double> seconds = price(pricer, plan);
      for (const Task& task : plan.tasks()) {
        if (!has_terms(task.kind)) continue;
        const TaskTerms terms = terms_of(task.kind, task.phase, plan.shape, plan.structure->flow);
        // Flows that send whole peers' rows home cut them evenly; T_rank of the paper's capacity is no whole number.
        const bool even = traits_of(plan.structure->flow).home_by_peers || plan.shape.rounding == Rounding::exact;
        const double share = even ? 1.0 / task.chunks
                                  : static_cast<double>(chunk_rows(plan.rows, task.chunks, task.chunk).count()) /
                                        static_cast<double>(plan.rows);
        const TaskRow& row = row_of(layer.profile, task_row_name(task.kind, plan.shape), task.phase);
        const double expected = layer.profile.task_overhead_s + dot(row.seconds_per_term, terms.share_terms(share));
        ASSERT_NEAR(seconds[task.id], expected, 1e-9 * expected)
            << task.name() << ", " << schedule.name << ", " << layer.text;
        ++computations;
      }
    }
  }
  EXPECT_GT(computations, 10000);
}

// In causal samples each pair counts twice, up to the L x L of a sample without a window.
TEST(TaskTerms, CountThePairsThatAWindowLeaves) {
  for (const int64_t window : {0, 1, 5, 16, 31, 40}) {
    LayerShape layer{.batch = 2, .seq = 32, .model_dim = 16, .hidden = 32, .heads = 4, .experts = 4, .top_k = 1};
    layer.window = window;
    const LayerCase shape = complete(layer, {.nodes = 1, .ranks_per_node = 1}, Rounding::ragged);
    int64_t pairs = 0;
    for (int64_t query = 0; query < layer.seq; ++query)
      for (int64_t key = 0; key <= query; ++key) pairs += window == 0 || query - key < window ? 2 : 0;
    pairs = std::min(pairs, layer.seq * layer.seq);
    const TaskTerms terms = terms_of(TaskKind::attention, Phase::forward, shape, Flow::sharded);
    EXPECT_DOUBLE_EQ(terms.row_terms[Term::score], static_cast<double>(layer.batch * layer.heads * pairs)) << window;
  }
}

TEST(TaskRows, TellALayerThatIsOutsideOfWhatWasMeasured) {
  auto layer = random_layer(1);
  const LayerCase& shape = layer.shape;
  const TermValues terms = terms_of(TaskKind::attention, Phase::forward, shape, Flow::sharded).share_terms(1);
  const auto notes = [&](double least, double most) {
    Profile profile = layer.profile;
    TaskRow row{.name = "attention", .dtype = shape.layer.dtype, .seconds_per_term = {0, 1e-12}};
    row.min[1] = least * terms[1];
    row.max[1] = most * terms[1];
    profile.tasks.push_back(row);
    const LayerPricer pricer(profile, shape);
    pricer.dense_seconds(TaskKind::attention, Phase::forward);
    return std::ranges::count_if(
        pricer.notes(), [](const PriceNote& n) { return n.text().starts_with("outside the measured range: task"); });
  };
  EXPECT_EQ(notes(0.5, 2), 0);
  EXPECT_EQ(notes(0.1, 0.5), 1);
  EXPECT_EQ(notes(2, 4), 1);
}

TEST(TaskRows, ASharedExpertTakesTheExpertsRowWhereItHasNone) {
  auto layer = random_layer(3);
  layer.shape.layer.shared_hidden = 64;
  const std::string ffn(name_of(layer.shape.layer.ffn));
  const TermValues terms = terms_of(TaskKind::shared, Phase::forward, layer.shape, Flow::sharded).share_terms(1);
  const auto seconds = [&] {
    return LayerPricer(layer.profile, layer.shape).dense_seconds(TaskKind::shared, Phase::forward) -
           layer.profile.task_overhead_s;
  };
  const auto add = [&](const std::string& name, double s_per_byte) {
    TaskRow row{.name = name, .dtype = layer.shape.layer.dtype};
    row.seconds_per_term[Term::hidden_byte] = s_per_byte;
    layer.profile.tasks.push_back(row);
  };
  const double bytes = terms[Term::hidden_byte], width = 64.0 / layer.shape.parallel.mp;
  EXPECT_EQ(bytes, 4 * static_cast<double>(layer.shape.layer.batch * layer.shape.layer.seq) * width);
  const ComputeRow gemm = layer.profile.compute.front();
  const int gemms = gemms_of(layer.shape.layer.ffn);
  const double macs = gemms * bytes / 4 * static_cast<double>(layer.shape.layer.model_dim);
  EXPECT_NEAR(seconds(), gemms * gemm.alpha_s + 2 * macs * gemm.beta_s_per_flop, 1e-9 * seconds()) << "no row at all";
  add("expert:" + ffn, 2);
  EXPECT_NEAR(seconds(), 2 * bytes, 1e-9 * bytes);
  add("shared:" + ffn, 3);
  EXPECT_NEAR(seconds(), 3 * bytes, 1e-9 * bytes);
}

TEST(TaskRows, OfAnotherTypeOrPhasePriceNothing) {
  auto layer = random_layer(2);
  const double before = LayerPricer(layer.profile, layer.shape).dense_seconds(TaskKind::attention, Phase::forward);
  const DType other = layer.shape.layer.dtype == DType::float64 ? DType::float32 : DType::float64;
  layer.profile.tasks.push_back({.name = "attention", .dtype = other, .seconds_per_term = {1}});
  layer.profile.tasks.push_back(
      {.name = "attention", .phase = Phase::backward, .dtype = layer.shape.layer.dtype, .seconds_per_term = {1}});
  const LayerPricer pricer(layer.profile, layer.shape);
  EXPECT_EQ(pricer.dense_seconds(TaskKind::attention, Phase::forward), before);
  EXPECT_EQ(pricer.dense_seconds(TaskKind::attention, Phase::backward), 1 + layer.profile.task_overhead_s);
}

}  // namespace
}  // namespace moe
