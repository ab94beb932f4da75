#pragma once
// Replays whole models by their decisions: a plan is built once per structure, and other numbers of gradient bytes only
// change its prices.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "moe/prices/pricer.h"
#include "moe/schedule/model_plan.h"
#include "moe/search/degrees.h"
#include "moe/simulator/fluid_replay.h"

namespace moe::search {

/// Returns the bytes of gradients that wait before a model's first backward: the head's, if one stage has all
/// layers.
int64_t waiting_bytes(const LayerPricer& pricer, const ModelShape& model);

class ModelReplay {
 public:
  /// Prepares a replay, which all arguments must outlive; `pricer` prices one layer of the model.
  ModelReplay(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model);

  /// Returns the seconds of the whole plan under the profile's contention. Throws BadInput if the decision has no plan.
  double seconds(const ModelDecision& decision);
  /// Returns whether every backward sends only gradients that exist by then.
  bool sends_what_waits(const ModelDecision& decision) const;
  /// These return the gradient bytes of an MoE layer, and of the i-th layer in a stage's backward.
  int64_t made_bytes() const { return made_bytes_; }
  int64_t made_bytes(size_t place) const { return made_by_layer_[made_by_layer_.size() - 1 - place]; }
  bool is_dense(size_t place) const { return decides_dense(model_, place); }
  int64_t waiting_bytes() const { return search::waiting_bytes(pricer_, model_); }
  /// Returns the effort so far, in tasks: of all replays, and of building plans, converted by the time that it takes.
  int64_t tasks() const { return tasks_; }

 private:
  struct Compiled {
    int64_t tasks;
    std::vector<double> seconds;     // by task id
    std::vector<size_t> slice_task;  // by slice
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
  bool makers_matter_;                  // false: dispatches on the gradients' lane wait for all earlier layers anyway
  int64_t tasks_ = 0;
  std::map<std::string, Compiled> compiled_;
  int64_t kept_ = 0;  // tasks of these plans
  std::vector<double> ends_;
};

/// Improves a model's decision by small moves (other degrees, bytes sent elsewhere) until none makes it faster. Each
/// move replays the whole model, so no assumption about contention is needed.
struct DescentMoves {
  std::vector<BackwardOption> backwards;
  bool one_degree = false;     // both phases have one degree, so all layers change together
  bool forward_too = false;    // r_f is open
  bool micro_batches = false;  // backwards of earlier micro-batches have a degree of their own
  bool in_moe = false;         // the schedule can send gradients in the MoE part
  int64_t element_bytes = 4;
  int64_t most_tasks = 0;  // limit of the effort: tasks of all replays
};

/// Improves `decision` and returns its new seconds, which are never more than before.
double descend(ModelReplay& replay, const DescentMoves& moves, ModelDecision& decision);

}  // namespace moe::search
