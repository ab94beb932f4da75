#pragma once
// One rank's layers while they serve batches: forward only, one expert per token, experts placed anew for each layer of
// a batch (moe/serve/serving.h has the plan). A device keeps the experts of the uniform placement; the weights of
// others are copied from host memory into slots. Rank 0 estimates, compares and places.
//
// Invariant: a row's output has the same bits whatever other rows its expert has, and on whatever device, if widths are
// multiples of 8. The last bits of GEMMs depend on their shape and their matrices' alignment, so experts compute
// kRowBlock rows at a time, empty ones included, and each has its weights in separate memory.
#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "moe/exec/executor.h"
#include "moe/layer/moe_layer.h"
#include "moe/serve/serving.h"

namespace moe {

/// All experts of all layers in host memory. Ranks of one process share them.
class HostExperts {
 public:
  /// An expert and views of its weights.
  struct StoredExpert {
    std::unique_ptr<Expert> expert;
    std::vector<TensorView> weights;
  };

  HostExperts(const LayerCase& shape, int layers, const LayerSeed& seed);
  std::span<const TensorView> weights(int layer, int expert) const {
    return experts_[layer * experts_per_layer_ + expert].weights;
  }

 private:
  int experts_per_layer_;
  std::vector<StoredExpert> experts_;  // [layer][expert]
};

struct ServedSetup {
  const LayerCase& shape;  // the case of a rank, as serving_plan takes it
  int layers = 1;
  LayerSeed seed = {};
  const HostExperts& host;             // outlives the layers, as do the fields below
  const PathProfile* paths = nullptr;  // null: nothing is estimated
  int max_experts = 4;                 // experts on a device, at most
  int list_length = 2;                 // length of the lists of popular experts that are compared
};

/// The results of estimates; rank 0 counts them.
struct ServedCounts {
  int64_t estimated = 0, right_lists = 0, placed_again = 0;
};

class ServedLayers {
 public:
  static constexpr int64_t kRowBlock = 32;

  /// Makes one rank's layers, blocking: all ranks of `world` make theirs. Throws as MoeLayer does; Unsupported for a
  /// layer that serving_plan refuses, for a hook, and for a dispatcher other than the plain one.
  ServedLayers(const ServedSetup& setup, Communicator& world);

  /// Begins a batch. `wanted`: the experts of this rank's tokens, by layer; empty: the gates choose.
  void begin_batch(std::span<const std::vector<int32_t>> wanted = {});
  TensorView input() const { return layers_.front()->input(); }
  TensorView output() const { return layers_.back()->output(); }
  /// Returns the last batch's placement of a layer.
  const ExpertPlacement& placement(int layer) const { return passes_[layer].placement; }
  /// Returns the experts that this rank's tokens chose in the last batch.
  const RoutingTrace& chosen() const { return chosen_; }
  const ServedCounts& counts() const { return counts_; }
  /// Returns the number of experts for which this device had memory in the last batch, including all that stay on it.
  int64_t held_expert_count() const;

 private:
  friend class ServingBinding;

  // The data of one layer of a batch. Numbers that ranks send each other stay at their address, because a communicator
  // gets it when a task is issued.
  struct Pass {
    std::vector<int64_t> own_counts, counts;       // [expert] of this rank's tokens; [rank][expert]
    std::vector<double> own_estimate, estimates;   // likewise, before the gate
    std::vector<double> estimate;                  // on rank 0: the sum of all ranks' estimates
    std::array<std::vector<double>, 2> decisions;  // encoded: before the gate, after it
    bool is_estimated = false;
    ExpertPlacement placement;
    // Sizes follow from the counts and the placement. A replica is an expert on a device that holds it.
    std::vector<int> first_replica;  // first replica of each device, and the end
    std::vector<int64_t> rows;       // [rank][replica]
    std::vector<int64_t> send_bytes, receive_bytes;
    std::unique_ptr<RowLayout> home;   // this rank's rows: device by device, replica by replica
    std::unique_ptr<Routing> routing;  // routing of this rank's tokens over replicas
  };
  /// Memory for the weights of one expert that was copied from the host.
  struct Slot {
    HostExperts::StoredExpert stored_expert;
    int layer = -1, expert = -1;
    bool was_used = false;
  };
  int ranks() const { return static_cast<int>(home_.devices.size()); }
  Pass& pass(int layer) { return passes_[layer]; }
  LayerState& layer(int layer) { return layers_[layer]->state(); }

  // Tasks; on their stream's thread.
  void gate(int layer);
  void estimate(int layer);
  void place_by_estimate(int layer);
  /// Compares the estimate with the gates' choices, and places anew if popular experts differ. `may_place`: whether the
  /// plan has the tasks for that; if not, a difference throws WrongResult.
  void check(int layer, bool may_place);
  void swap(int layer, bool behind_gate);
  void order(int layer);
  void experts(int layer);
  void i_order(int layer);

  /// Sets the sizes that follow from a layer's placement and its counts, which all ranks have.
  void set_sizes(int layer);
  /// Sets the rows of this rank's tokens and the buffers. `replicas`: by expert.
  void set_rows(int layer, const std::vector<std::vector<int>>& replicas);
  std::vector<double> encode(const ExpertPlacement& placement) const;
  ExpertPlacement decode(const std::vector<double>& decision) const;
  /// Returns a layer's placement by the decisions so far.
  ExpertPlacement decided(int layer, bool behind_gate) const;
  Expert& find(int layer, int expert);
  TensorView buffer(std::string_view name, int64_t elements);

  ServedSetup setup_;
  ExpertPlacement home_;
  size_t max_hosted_;  // hosted experts of a device in a decision, at most
  LayerComms comms_;
  std::vector<std::unique_ptr<MoeLayer>> layers_;
  std::vector<Pass> passes_;
  std::vector<std::vector<HostExperts::StoredExpert>> home_experts_;  // [layer][expert of this rank]
  std::array<std::vector<Slot>, 2> slots_;  // slots of even and of odd layers: two layers' experts are needed at once
  RoutingTrace chosen_;
  ServedCounts counts_;
  TensorStore rows_;
  std::vector<std::shared_ptr<const Tensor>> buffers_;
  TensorView home_rows_, gathered_, rows_in_, rows_out_;
};

/// Implements the tasks of a batch's plan on one rank. If a layer is not checked, all ranks exchange their counts after
/// its gate, in no task's time.
class ServingBinding final : public Binding {
 public:
  /// Binds a plan with as many layers (serving_plan), whose structure is shared. `layers` outlives the binding.
  ServingBinding(ServedLayers& layers, const Plan& plan);

  void issue(const Task& task, Stream& stream, Pace pace) override;
  void finish_task(const Task& task, Stream& stream) override;

 private:
  void communicate(const Task& task, const CommCall& call);

  ServedLayers& layers_;
  Plan plan_;
  std::vector<ServedLayer> served_;  // by layer
  std::vector<std::string> names_;   // of the tasks; communicators keep views of them
};

}  // namespace moe
