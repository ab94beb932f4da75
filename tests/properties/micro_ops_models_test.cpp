// Gradient pieces by priority over whole models: the frozen plan against the event-driven simulator, and what Lina's
// sections 4.2 and 6.1 promise of it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "moe/base/registry.h"
#include "moe/search/model_search.h"
#include "moe/shape/model_file.h"
#include "tests/properties/cases.h"
#include "tests/properties/priority_simulator.h"

namespace moe {
namespace {

using conformance::full_layer;
using conformance::PriorityRun;
using conformance::simulate_priority;
using conformance::WaitingPiece;
using random_layer::RandomLayer;

bool is_gradient(const Task& task) { return sends_gradients(task.kind); }

bool holds(std::string_view schedule) { return schedule == "lina" || schedule == "lina-packed"; }

ModelResult tuned(std::string_view schedule, const LayerPricer& pricer, const ModelShape& model,
                  DegreeChoice choice = {}) {
  return ModelSearch().tune(find_schedule(schedule), pricer, model, choice);
}

std::vector<WaitingPiece> pieces_of(const Plan& plan, std::span<const double> seconds) {
  std::vector<WaitingPiece> pieces(plan.slices.size());
  for (const Task& task : plan.tasks()) {
    if (!is_gradient(task)) continue;
    const GradientSlice& slice = plan.slices.at(size_t(task.slice));
    pieces.at(size_t(task.slice)) = {seconds[size_t(task.id)], task.lane,
                                     plan.gradients.at(size_t(slice.gradient)).made_by};
  }
  return pieces;
}

// Every piece and every task of the frozen plan starts when a scheduler starts it that decides as things happen.
TEST(MicroOpsOfModels, FrozenOrderIsThePrioritySimulation) {
  int models = 0, held = 0, beside = 0;
  for (uint64_t seed = 1; seed <= 120; ++seed) {
    const RandomLayer layer = full_layer(seed);
    const LayerPricer pricer(layer.profile, layer.shape);
    if (!pricer.has(GroupKind::dp) || !pricer.has(GroupKind::ep)) continue;
    const int64_t bytes = 4 * (1 + static_cast<int64_t>(seed * 7 % 40));
    const ModelShape model{layer.shape, 1 + static_cast<int>(seed % 4), 1 + static_cast<int>(seed % 3)};
    for (const char* schedule : {"pipemoe+lina", "lina-priority", "lina-partition", "lina", "lina-packed"}) {
      SCOPED_TRACE(fmt::format("{}, {} layers, pieces of {} bytes, {}", schedule, model.layers, bytes, layer.text));
      const bool experts = std::string_view(schedule) == "lina-packed";  // whose gradients are many
      const ModelResult result = tuned(schedule, pricer, model, {.micro_op_bytes = experts ? 64 * bytes : bytes});
      const Plan& plan = result.plan;
      const std::vector<double> seconds = price(pricer, plan);
      const PriorityRun run = simulate_priority(*plan.structure, seconds, pieces_of(plan, seconds), holds(schedule));
      const double slack = 1e-12 * run.end;
      for (const Task& task : plan.tasks()) {
        const double expected = is_gradient(task) ? run.piece_starts[size_t(task.slice)] : run.starts[size_t(task.id)];
        const double seconds_of = seconds[size_t(task.id)];
        if (task.kind != TaskKind::optimizer) {
          ASSERT_NEAR(result.timeline.end_s[size_t(task.id)], expected + seconds_of, slack) << task.name();
        }
        beside += is_gradient(task) && task.id < result.last_backward;
      }
      held += run.held;
      ++models;
    }
  }
  EXPECT_GT(models, 200);
  EXPECT_GT(held, 20) << "by the AlltoAll that is imminent";
  EXPECT_GT(beside, 500) << "pieces before the last attention";
}

// Where the combine's computation takes no time there is nothing to hold: lina is lina-partition with its experts
// pipelined, and pieces run beside attention.
TEST(MicroOpsOfModels, LinaSendsBesideAttention) {
  const Profile profile = find_profile("testbed-b");
  const Model model = model_on_cluster(find_model("gpt2-xl@fsmoe"), "testbed-b");
  ParallelShape parallel = model.parallel;
  parallel.nodes = profile.nodes;
  parallel.ranks_per_node = profile.ranks_per_node;
  const ModelShape shape{complete(model.layer, parallel, Rounding::ragged), model.layers, 1};
  const LayerPricer pricer(profile, shape.shape);
  const ModelResult lina = tuned("lina", pricer, shape), partition = tuned("lina-partition", pricer, shape);
  int64_t tail = 0;
  int beside = 0;
  for (const Task& piece : lina.plan.tasks()) {
    if (piece.kind != TaskKind::gradient) continue;
    if (piece.id > lina.last_backward) tail += lina.plan.slices[size_t(piece.slice)].bytes();
    for (const Task& task : lina.plan.tasks())
      beside += task.kind == TaskKind::attention && task.phase == Phase::backward &&
                lina.timeline.start_s[size_t(piece.id)] < lina.timeline.end_s[size_t(task.id)] &&
                lina.timeline.start_s[size_t(task.id)] < lina.timeline.end_s[size_t(piece.id)];
  }
  fmt::print(
      "GPT2-XL on testbed-b: lina {:.1f} ms, lina-partition {:.1f} ms, tail {:.1f} MiB, {} pieces beside "
      "attention\n",
      1e3 * lina.total_s(), 1e3 * partition.total_s(), double(tail) / (1 << 20), beside);
  EXPECT_LE(lina.total_s(), partition.total_s() * (1 + 1e-9));
  EXPECT_LT(lina.total_s(), 0.63);
  EXPECT_LT(tail, 20 << 20);
  EXPECT_GT(beside, 90) << "of 96 pieces";
}

}  // namespace
}  // namespace moe
