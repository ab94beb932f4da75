#pragma once
// Replays of whole models for given decisions. A plan is built only once per structure, because other numbers of
// gradient bytes change only its prices.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "moe/prices/pricer.h"
#include "moe/schedule/model_plan.h"
#include "moe/search/degrees.h"
#include "moe/simulator/fluid_replay.h"

namespace moe::search {

/// Returns the gradient bytes that exist before a model's first backward: the head's, if one stage has all layers.
int64_t waiting_bytes(const LayerPricer& pricer, const ModelShape& model);

class ModelReplay {
 public:
  /// `pricer` prices one layer of the model. All arguments must outlive the object.
  ModelReplay(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model);

  /// Returns the seconds of the decision's plan under the profile's contention. Throws BadInput if it has no plan.
  double seconds(const ModelDecision& decision);
  /// Returns whether every backward sends at most the gradient bytes that exist and wait when it begins.
  bool sends_all_waiting_bytes(const ModelDecision& decision) const;
  /// These return the gradient bytes of an MoE layer, and of the layer at position `place` in a stage's backward.
  int64_t made_bytes() const { return made_bytes_; }
  int64_t made_bytes(size_t place) const { return made_by_layer_[made_by_layer_.size() - 1 - place]; }
  bool is_dense(size_t place) const { return decides_dense(model_, place); }
  int64_t waiting_bytes() const { return search::waiting_bytes(pricer_, model_); }
  /// Returns the effort so far in replayed tasks. Building a plan counts as the number of tasks that are replayed in
  /// the same time.
  int64_t tasks() const { return tasks_; }

 private:
  struct Compiled {
    int64_t tasks;
    std::vector<double> seconds;     // by task id
    std::vector<size_t> slice_task;  // for each slice, its task
    std::optional<Replay> plain;
    std::optional<FluidReplay> fluid;
  };
  struct Slice {
    int stage = 0;
    int64_t bytes = 0;
  };
  std::vector<Slice> slices_of(const ModelDecision& decision) const;
  std::string makers(const std::vector<Slice>& slices) const;
  Compiled compile(const ModelDecision& decision) const;

  const Schedule& schedule_;
  const LayerPricer& pricer_;
  const ModelShape& model_;
  int64_t made_bytes_, head_bytes_, embedding_bytes_;
  std::vector<int64_t> made_by_layer_;  // gradient bytes by layer
  bool makers_matter_;                  // false: tasks on the gradients' lane wait for all makers anyway
  int64_t tasks_ = 0;
  std::map<std::string, Compiled> compiled_;
  int64_t kept_ = 0;  // number of tasks of all compiled plans
  std::vector<double> ends_;
};

/// The moves of descend(), which improves a model's decision by small moves (other degrees, bytes sent elsewhere) until
/// none makes it faster. Each move replays the whole model, so nothing is assumed about contention.
struct DescentMoves {
  std::vector<BackwardOption> backwards;
  bool one_degree = false;     // one degree for both phases and all layers
  bool forward_too = false;    // r_f may change
  bool micro_batches = false;  // backwards of earlier micro-batches may have another degree
  bool in_moe = false;         // the schedule can send gradients in the MoE part
  int64_t element_bytes = 4;
  int64_t max_tasks = 0;  // limit for ModelReplay::tasks()
};

/// Improves `decision`; returns its new seconds, which never exceed the old ones.
double descend(ModelReplay& replay, const DescentMoves& moves, ModelDecision& decision);

}  // namespace moe::search
