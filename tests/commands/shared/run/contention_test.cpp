// Layers on an emulated cluster whose lanes slow each other down: run for real, beside the replay of the same factors.
#include <gtest/gtest.h>

#include "commands/shared/run/layer_run.h"
#include "moe/simulator/simulator.h"

namespace moe::commands {
namespace {

LayerJob contended_job(const Contention& contention, std::initializer_list<std::string_view> schedules) {
  LayerJob job;
  job.name = "contended";
  LayerShape layer;
  layer.batch = 1;
  layer.seq = 512;
  layer.model_dim = 1024;
  layer.hidden = 2048;
  layer.heads = 8;
  Profile profile = find_profile("testbed-b");
  profile.contention = contention;
  job.model.shape =
      complete(layer, {.nodes = profile.nodes, .ranks_per_node = profile.ranks_per_node}, Rounding::ragged);
  job.predicted_by = profile;
  job.paced_by = profile;
  for (const std::string_view name : schedules) job.schedules.push_back(&find_schedule(name));
  job.settings.iterations = 3;
  return job;
}

/// Every schedule runs and is verified; none of its passes is faster than its tasks would be alone, whatever the
/// machine is busy with. Returns by how much the slowest schedule is predicted to be slower than that.
double expect_run(const LayerJob& job) {
  const LayerOutcome outcome = run_layer_job(job, {});
  EXPECT_EQ(outcome.runs.size(), job.schedules.size());
  double most = 1;
  for (const auto& [record, plan, predicted, measured, rank, tasks, packing] : outcome.runs) {
    EXPECT_TRUE(record.status == CaseStatus::ok || record.status == CaseStatus::invalid) << record.reason;
    const double alone_s =
        simulate(*plan.structure, price(LayerPricer(*job.paced_by, job.shape(), job.pricing), plan)).makespan_s;
    const double predicted_s = record.prediction.number("total_s", "");
    EXPECT_GE(record.summary.number("least_total_s", ""), alone_s * (1 - 1e-6)) << record.schedule;
    most = std::max(most, predicted_s / alone_s);
    fmt::print("{}: alone {:.2f} ms, predicted {:.2f}, measured {:.2f}\n", record.schedule, 1e3 * alone_s,
               1e3 * predicted_s, 1e3 * record.summary.number("total_s", ""));
  }
  return most;
}

TEST(EmulatedContention, FactorsSlowLanesThatRunAtOnce) {
  const LayerJob job = contended_job({1.5, 1.5, 1.2, 1.1, 1.15, 1.3}, {"tutel", "fsmoe"});
  EXPECT_GT(expect_run(job), 1.01);
}

TEST(EmulatedContention, LanesThatShareANetworkAreRun) {
  EXPECT_GT(expect_run(contended_job({}, {"lina-baseline"})), 1.01);
}

}  // namespace
}  // namespace moe::commands
