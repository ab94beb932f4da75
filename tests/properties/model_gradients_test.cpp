// Whole models under every schedule and any decision: each layer's gradient bytes are sent once, after all backwards of
// that layer and by every stage before its step; on timelines of random times, not by the plan's own dependencies.
#include <algorithm>
#include <gtest/gtest.h>
#include <map>

#include "moe/base/random.h"
#include "moe/schedule/model_plan.h"
#include "moe/simulator/fluid_replay.h"
#include "tests/properties/cases.h"

namespace moe {
namespace {

class Draws {
 public:
  explicit Draws(uint64_t seed) : seed_(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(random_bits(seed_, 91, index_++) % static_cast<uint64_t>(n)); }

 private:
  uint64_t seed_, index_ = 0;
};

// Four nodes of two ranks in one or two stages; two layers a stage or three.
ModelShape any_model(Draws& draws) {
  LayerShape layer{.batch = 2, .seq = 20, .model_dim = 16, .hidden = 32, .heads = 8, .experts = 12};
  const int pp = 1 + static_cast<int>(draws.below(2)), mp = 1 + static_cast<int>(draws.below(2));
  const LayerCase shape =
      complete(layer, {.nodes = 4, .ranks_per_node = 2, .mp = mp, .ep = 2, .esp = mp, .pp = pp}, Rounding::ragged);
  return {shape, pp * (2 + static_cast<int>(draws.below(2))), 1 + static_cast<int>(draws.below(3)),
          draws.below(2) == 0 ? PipelineOrder::gpipe : PipelineOrder::one_f_one_b};
}

// In each backward, any part of what waits then, in the places that the schedule has.
ModelDecision any_decision(const Schedule& schedule, const ModelShape& model, Draws& draws) {
  ModelDecision decision;
  const bool apart = schedule.degrees == DegreePolicy::apart, one = schedule.degrees == DegreePolicy::one;
  decision.degree_forward = one ? 1 : 1 + static_cast<int>(draws.below(3));
  decision.degree_backward = apart ? 1 + static_cast<int>(draws.below(3)) : decision.degree_forward;
  const int64_t each = gradient_bytes(model.shape);
  decision.micro_op_bytes = std::max<int64_t>(8, each / (1 + draws.below(5)));
  const size_t pieces = gradient_pieces(schedule, model.shape, decision.micro_op_bytes).size();
  int64_t waiting = 0;
  size_t waiting_pieces = 0;
  for (int layer = 0; layer < model.layers / model.shape.parallel.pp; ++layer) {
    BackwardDecision b;
    b.degree = apart ? 1 + static_cast<int>(draws.below(3)) : decision.degree_forward;
    if (schedule.gradients == GradientPolicy::adaptive) b.gar_in_moe_bytes = draws.below(waiting / 4 + 1) * 4;
    if (schedule.gradients == GradientPolicy::adaptive || schedule.gradients == GradientPolicy::beside_dense)
      b.gar_beside_dense_bytes = draws.below((waiting - b.gar_in_moe_bytes) / 4 + 1) * 4;
    if (schedule.gradients == GradientPolicy::micro_ops) {
      const auto count = static_cast<size_t>(draws.below(static_cast<int64_t>(waiting_pieces) + 1));
      for (size_t i = 0; i < count; ++i) b.gaps.push_back(static_cast<int>(draws.below(15)));
      std::ranges::sort(b.gaps);
    }
    waiting += each - b.gar_in_moe_bytes - b.gar_beside_dense_bytes;
    waiting_pieces += pieces - b.gaps.size();
    decision.backwards.push_back(b);
  }
  return decision;
}

// When a layer's last backward ends, by layer.
std::map<int, double> backward_ends(const Plan& plan, const Timeline& t) {
  std::map<int, double> ends;
  for (const Task& task : plan.tasks())
    if (task.phase == Phase::backward && !sends_gradients(task.kind) && task.kind != TaskKind::optimizer &&
        task.kind != TaskKind::send && task.kind != TaskKind::recv)
      ends[task.layer] = std::max(ends[task.layer], t.end_s[task.id]);
  return ends;
}

// When the last expert of its last backward ends, by layer: its experts' gradients are there then.
std::map<int, double> expert_ends(const Plan& plan, const Timeline& t) {
  std::map<int, double> ends;
  for (const Task& task : plan.tasks())
    if (task.phase == Phase::backward && makes_expert_gradients(task.kind))
      ends[task.layer] = std::max(ends[task.layer], t.end_s[task.id]);
  return ends;
}

// The layers of which a slice has bytes, and how many.
std::map<int, int64_t> bytes_by_layer(const Plan& plan, const GradientSlice& slice) {
  std::map<int, int64_t> bytes;
  int64_t begin = slice.begin, left = slice.bytes();
  for (size_t g = static_cast<size_t>(slice.gradient); left > 0; ++g) {
    const int64_t here = std::min(left, plan.gradients.at(g).bytes - begin);
    bytes[plan.gradients[g].layer] += here;
    left -= here;
    begin = 0;
  }
  return bytes;
}

void check(const Plan& plan, const ModelShape& model, uint64_t seed) {
  std::vector<double> seconds(plan.structure->tasks.size());
  for (size_t i = 0; i < seconds.size(); ++i) seconds[i] = random_uniform(seed, 92, i);
  const Timeline t = fluid_timeline(*plan.structure, networks_of(plan.groups), {}, seconds);
  std::map<int, double> made = backward_ends(plan, t);
  const std::map<int, double> experts_made = expert_ends(plan, t);
  for (const Task& task : plan.tasks())  // the output projection's, by the loss after the last forward
    if (task.phase == Phase::forward && task.layer + 1 == model.layers && task.micro_batch + 1 == model.micro_batches)
      made[model.layers] = std::max(made[model.layers], t.end_s[task.id]);
  made[-1] = made.at(0);  // the embedding's
  std::map<int, int64_t> sent, experts_sent;
  std::map<int, double> last_sent, stepped;  // by stage
  for (const Task& task : plan.tasks()) {
    const int stage = plan.structure->lanes[task.lane].stage;
    if (task.kind == TaskKind::optimizer)  // the last one
      stepped[stage] = std::max(stepped[stage], t.start_s[task.id]);
    if (task.kind == TaskKind::stage_gradient || !sends_gradients(task.kind)) continue;
    const bool experts = task.kind == TaskKind::expert_gradient;
    last_sent[stage] = std::max(last_sent[stage], t.end_s[task.id]);
    for (const auto& [layer, bytes] : bytes_by_layer(plan, plan.slices.at(task.slice))) {
      ASSERT_GE(t.start_s[task.id], (experts ? experts_made : made).at(layer) - 1e-9)
          << task.name() << " of layer " << layer;
      const std::vector<int> layers = layers_of_stage(model.split(), stage);
      const bool own = std::ranges::find(layers, layer) != layers.end();
      ASSERT_TRUE(own || (layer < 0 && layers.front() == 0) ||
                  (layer == model.layers && layers.back() + 1 == model.layers))
          << task.name() << " of layer " << layer << " is sent by stage " << stage;
      (experts ? experts_sent : sent)[layer] += bytes;
    }
  }
  for (const auto& [stage, end] : last_sent) ASSERT_GE(stepped.at(stage), end - 1e-9) << "stage " << stage;
  const ParallelShape& p = model.shape.parallel;
  const bool replicas = (plan.step.planned || find_schedule(plan.schedule).packs_experts) && p.edp > 1;
  for (int layer = 0; layer < model.layers; ++layer) {
    ASSERT_EQ(sent[layer], p.dp > 1 ? gradient_bytes(model.shape) : 0) << "layer " << layer;
    ASSERT_EQ(experts_sent[layer], replicas ? expert_gradient_bytes(model.shape) : 0) << "layer " << layer;
  }
  ASSERT_EQ(sent[model.layers], p.dp > 1 ? model.head_gradient_bytes : 0);
  ASSERT_EQ(sent[-1], p.dp > 1 ? model.embedding_gradient_bytes : 0);
}

TEST(ModelGradients, AreSentOnceAndOnlyOnceMade) {
  int plans = 0, interleaved = 0;
  for (uint64_t seed = 1; seed <= 150; ++seed)
    for (const Schedule& schedule : schedules()) {
      if (!schedule.variants.empty()) continue;
      Draws draws(seed);
      ModelShape model = any_model(draws);
      if (seed % 3 == 0 && model.shape.parallel.pp == 2) {  // two chunks a stage
        model.virtual_stages = 2;
        model.layers = 4 * (1 + static_cast<int>(seed % 2));
        model.micro_batches = 2 + 2 * static_cast<int>(seed % 2);
        model.order = PipelineOrder::one_f_one_b;
        ++interleaved;
      }
      model.head_gradient_bytes = 4 * draws.below(200);
      model.embedding_gradient_bytes = 4 * draws.below(200);
      if (seed % 2 == 0) model.step = {true, seed % 4 == 0, OptimizerKind::adamw};
      const ModelDecision decision = any_decision(schedule, model, draws);
      SCOPED_TRACE(fmt::format("{}, seed {}, {} layers, {} micro-batches, {} stages, {}", schedule.name, seed,
                               model.layers, model.micro_batches, model.shape.parallel.pp,
                               conformance::text_of(model.shape)));
      Plan plan;
      ASSERT_NO_THROW(plan = build_model_plan(schedule, model, decision));
      check(plan, model, seed);
      if (HasFatalFailure()) return;
      ++plans;
    }
  EXPECT_GT(plans, 3000);
  EXPECT_GT(interleaved, 400);
}

}  // namespace
}  // namespace moe
