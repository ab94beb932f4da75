#pragma once
// One rank's layers for inference: forward only, one expert per token. Experts are placed on devices again for each
// layer of each batch (moe/serve/serving.h describes the plan). A device always holds the experts that the uniform
// placement gives it; the weights of other experts are copied from host memory into slots. Rank 0 decides all
// placements.
//
// Invariant: if widths are multiples of 8, the bits of a row's output depend neither on the other rows of its expert
// nor on the device. The last bits of a GEMM depend on its shape and on the alignment of its matrices, so experts
// compute kRowBlock rows at a time, padded with empty rows, and each expert's weights are allocated separately.
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
  const LayerCase& shape;  // case of the layers, as serving_plan takes it
  int layers = 1;
  LayerSeed seed = {};
  const HostExperts& host;             // outlives the layers, as does `paths`
  const PathProfile* paths = nullptr;  // profile for estimates of the gates' choices; null: no estimates
  int max_experts = 4;                 // largest number of experts on a device
  int list_length = 2;                 // length of the compared lists of estimated and chosen popular experts
};

/// Numbers of estimates, of estimates with the right popular experts, and of estimated layers placed again. Only rank 0
/// counts.
struct ServedCounts {
  int64_t estimated = 0, right_lists = 0, placed_again = 0;
};

class ServedLayers {
 public:
  static constexpr int64_t kRowBlock = 32;

  /// Makes one rank's layers. Blocks until all ranks of `world` have called it. Throws as MoeLayer does, and
  /// Unsupported for a layer that serving_plan refuses, for a hook, and for a dispatcher other than the plain AlltoAll.
  ServedLayers(const ServedSetup& setup, Communicator& world);

  /// Begins a batch. `wanted` presets the experts of this rank's tokens, by layer; if it is empty, the gates choose.
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

  // The data of one layer of a batch. The vectors that ranks send each other are never reallocated, because a
  // communicator gets their addresses when a task is issued.
  struct Pass {
    std::vector<int64_t> own_counts, counts;       // tokens per expert: [expert] on this rank; [rank][expert]
    std::vector<double> own_estimate, estimates;   // estimates of these counts before the gate
    std::vector<double> estimate;                  // sum of all ranks' estimates; only on rank 0
    std::array<std::vector<double>, 2> decisions;  // encoded placements decided before and after the gate
    bool is_estimated = false;
    ExpertPlacement placement;
    // These sizes follow from the counts and the placement. A replica is a copy of an expert on one device.
    std::vector<int> first_replica;  // first replica of each device, then the number of replicas
    std::vector<int64_t> rows;       // number of rows, [rank][replica]
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

  // The following functions run tasks, on the thread of the task's stream.
  void gate(int layer);
  void estimate(int layer);
  void place_by_estimate(int layer);
  /// Compares the estimate with the gates' choices, and places the experts again if the popular experts differ. If
  /// `may_place` is false, the plan has no tasks for a second placement, and a difference throws WrongResult.
  void check(int layer, bool may_place);
  void swap(int layer, bool behind_gate);
  void order(int layer);
  void experts(int layer);
  void i_order(int layer);

  /// Sets the sizes that follow from a layer's placement and counts. All ranks have the same counts.
  void set_sizes(int layer);
  /// Sets the rows of this rank's tokens and the buffers. `replicas` has the replicas of each expert.
  void set_rows(int layer, const std::vector<std::vector<int>>& replicas);
  std::vector<double> encode(const ExpertPlacement& placement) const;
  ExpertPlacement decode(const std::vector<double>& decision) const;
  /// Returns a layer's placement according to the decisions made so far.
  ExpertPlacement decided(int layer, bool behind_gate) const;
  Expert& find(int layer, int expert);
  TensorView buffer(std::string_view name, int64_t elements);

  ServedSetup setup_;
  ExpertPlacement home_;
  size_t max_hosted_;  // largest number of hosted experts per device in a decision
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

/// Runs the tasks of a batch's plan on one rank. After the gate of a layer whose plan has no check task, all ranks
/// exchange their counts; this is not part of any task's time.
class ServingBinding final : public Binding {
 public:
  /// Binds a plan made by serving_plan for the same number of layers. `layers` must outlive the binding.
  ServingBinding(ServedLayers& layers, const Plan& plan);

  void issue(const Task& task, Stream& stream, Pace pace) override;
  void finish_task(const Task& task, Stream& stream) override;

 private:
  void communicate(const Task& task, const CommCall& call);

  ServedLayers& layers_;
  Plan plan_;
  std::vector<ServedLayer> served_;  // by layer
  std::vector<std::string> names_;   // task names; communicators keep views of them
};

}  // namespace moe
