#pragma once
// Replays whole models by their decisions: plans are built once for each structure, after which another number of
// gradient bytes only changes prices.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "moe/prices/pricer.h"
#include "moe/schedule/model_plan.h"
#include "moe/search/degrees.h"
#include "moe/simulator/fluid_replay.h"

namespace moe::search {

/// Returns the bytes of gradients that wait before a model's first backward: the head's, where one stage has all
/// layers.
int64_t waiting_bytes(const LayerPricer& pricer, const ModelShape& model);

class ModelReplay {
 public:
  /// Prepares a replay, which all that is given must outlive; `pricer` prices one layer of the model.
  ModelReplay(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model);

  /// Returns the seconds of the whole plan under the profile's contention. Throws BadInput if the decision has no plan.
  double seconds(const ModelDecision& decision);
  /// Returns whether every backward sends only gradients that exist by then.
  bool sends_what_waits(const ModelDecision& decision) const;
  /// These return the gradient bytes of a layer with experts, and of the i-th layer that a stage's backward visits.
  int64_t made_bytes() const { return made_bytes_; }
  int64_t made_bytes(size_t place) const { return made_by_layer_[made_by_layer_.size() - 1 - place]; }
  bool is_dense(size_t place) const { return decides_dense(model_, place); }
  int64_t waiting_bytes() const { return search::waiting_bytes(pricer_, model_); }
  /// Returns the effort so far: tasks of all replays, and those of building plans by what they take.
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
  std::vector<int64_t> made_by_layer_;  // bytes
  bool makers_matter_;                  // false: dispatches on the gradients' lane wait for all layers before already
  int64_t tasks_ = 0;
  std::map<std::string, Compiled> compiled_;
  int64_t kept_ = 0;  // tasks of those
  std::vector<double> ends_;
};

/// Improves a model's decision by small moves (other degrees, bytes sent elsewhere) until none makes it faster. Each
/// move is replayed whole, so that nothing about contention is assumed.
struct DescentMoves {
  std::vector<BackwardOption> backwards;
  bool one_degree = false;     // of both phases: all layers move together
  bool forward_too = false;    // r_f is open
  bool micro_batches = false;  // the backwards before the last have a degree of their own
  bool in_moe = false;         // the schedule has a place for gradients there
  int64_t element_bytes = 4;
  int64_t most_tasks = 0;  // effort: tasks of all replays
};

/// Improves `decision` and returns its seconds then; never more than before.
double descend(ModelReplay& replay, const DescentMoves& moves, ModelDecision& decision);

}  // namespace moe::search
