// Hand-overs between pipeline stages: networks are full duplex.
#include <gtest/gtest.h>
#include <map>

#include "moe/schedule/model_plan.h"
#include "moe/schedule/schedule.h"
#include "moe/simulator/simulator.h"

namespace moe {
namespace {

// Two stages of one rank and two layers. Per stage a pass takes 1 s; a hand-over takes 10 s.
Plan two_stages() {
  const LayerShape layer{.batch = 1, .seq = 16, .model_dim = 16, .hidden = 16, .heads = 1, .experts = 1, .top_k = 1};
  const ParallelShape parallel{.nodes = 2, .ranks_per_node = 1, .mp = 1, .ep = 1, .esp = 1, .pp = 2};
  const ModelShape model{complete(layer, parallel, Rounding::ragged), 4, 3, PipelineOrder::one_f_one_b};
  ModelDecision decision;
  decision.backwards.resize(2);
  return build_model_plan(find_schedule("fsmoe"), model, decision);
}

// Stage 0 runs F0 F1 B0 F2 B1 B2, stage 1 F0 B0 F1 B1 F2 B2. Stage 1 sends B0's gradient from 13 to 23 s and has F1's
// input at 21 s; stage 0 sends F2's output from 25 to 35 s and has B1's gradient at 33 s.
TEST(Stages, ReceiveWhileTheySend) {
  const Plan plan = two_stages();
  std::vector<double> seconds;
  for (const Task& task : plan.structure->tasks)
    seconds.push_back(task.kind == TaskKind::send                               ? 10
                      : task.kind == TaskKind::attention && task.layer % 2 == 0 ? 1
                                                                                : 0);
  const Timeline timeline = simulate(*plan.structure, seconds);
  std::map<std::tuple<Phase, int, int>, double> starts;  // of attentions, by phase, micro-batch and stage
  for (const Task& task : plan.tasks())
    if (task.kind == TaskKind::attention && task.layer % 2 == 0)
      starts[{task.phase, task.micro_batch, task.layer / 2}] = timeline.start_s[task.id];
  EXPECT_DOUBLE_EQ((starts[{Phase::forward, 0, 1}]), 11);
  EXPECT_DOUBLE_EQ((starts[{Phase::forward, 1, 1}]), 21);
  EXPECT_DOUBLE_EQ((starts[{Phase::backward, 0, 0}]), 23);
  EXPECT_DOUBLE_EQ((starts[{Phase::backward, 1, 0}]), 33);
  EXPECT_DOUBLE_EQ((starts[{Phase::forward, 2, 1}]), 35);
  EXPECT_DOUBLE_EQ(timeline.makespan_s, 48);
}

}  // namespace
}  // namespace moe
