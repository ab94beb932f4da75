#pragma once
// All ranks of a model as threads of this process, for tests.
#include <memory>
#include <vector>

#include "moe/comm/local/local_world.h"
#include "moe/measure/layers/rank_run.h"
#include "moe/stack/stack_errors.h"

namespace moe {

/// Returns where models of this executable's tests compute: on_cpu.cpp, on_gpu.cpp.
DeviceKind models_device();

class LocalModels {
 public:
  LocalModels(const Plan& plan, const TokenSource& text, uint64_t seed, bool step_outside_pass = false,
              DeviceKind device = models_device());
  /// Runs steps, which before train() change no weight. Returns the loss of each.
  std::vector<double> run(int steps);
  void train(const OptimizerSettings& settings);
  /// Writes a checkpoint of the ranks' steps so far, or goes on from the newest one.
  void write(const std::string& folder) const;
  void read(const std::string& folder);
  /// Returns the bytes of every rank's weights.
  std::vector<std::byte> weights() const;
  /// Zeroes the weights whose names end so.
  void zero(const std::vector<std::string>& ends);
  double held_out_loss(int batches);
  StackChoices choices() const;
  std::vector<RankCells> cells() const;
  const std::vector<std::unique_ptr<measure::RankRun>>& ranks() const { return ranks_; }

 private:
  double sum(const std::vector<double>& to_rank_order) const;

  Plan plan_;
  LocalWorld world_;
  std::vector<std::unique_ptr<measure::RankRun>> ranks_;
};

/// Returns a case with groups of these sizes, a node for each MP group of each stage.
LayerCase model_case(LayerShape layer, ParallelShape sizes);
/// Returns the plan of a model with equal degrees.
Plan model_plan(const std::string& schedule, const LayerCase& shape, int layers, int micro_batches, int64_t vocabulary,
                const StepShape& step = {true, true, OptimizerKind::adamw});

}  // namespace moe
