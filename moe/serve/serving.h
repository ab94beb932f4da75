#pragma once
// Simulates inference of MoE layers whose gates send tokens unevenly: batches pass layer after layer, and experts are
// placed anew for each (Lina, sections 5 and 6.2). Every rank is a device of one expert-parallel group; a token has one
// expert a layer.
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "moe/prices/pricer.h"
#include "moe/serve/expert_placement.h"
#include "moe/serve/path_profile.h"
#include "moe/simulator/rank_replay.h"

namespace moe {

/// A way to serve batches.
struct ServingVariant {
  std::string_view name, summary;
  bool balanced = false;    // every expert gets as many tokens, whatever the trace says
  bool estimates = false;   // experts are placed before the gate, by the estimate
  bool fine_tunes = false;  // and after it, by its choices, where the lists of popular experts differ
  bool places() const { return estimates || fine_tunes; }
};
/// Returns `uniform` (experts stay where they are), `ideal` (a balanced gate), `lina-serve`, and this without
/// estimation (every layer is placed by its gate's choices) and without fine-tuning.
std::span<const ServingVariant> serving_variants();

/// What one layer of a batch does beside its layer's own tasks.
struct ServedLayer {
  bool estimates_next = false;  // the next layer is placed while this one computes
  bool checks = false;          // the gate's choices go to the scheduler, which answers before rows are sent
  bool places_again = false;    // and places the experts by them
  auto operator<=>(const ServedLayer&) const = default;
};

/// Throws Unsupported for a layer with MP, ESP, stages, several experts a token, a shared expert or a capacity, or an
/// EP group that is not all ranks.
void check_served(const LayerCase& shape);

/// Chunks of `schedule` and `swap`: what was decided before the gate, and behind it.
inline constexpr int kBeforeGate = 0, kBehindGate = 1;

/// Returns the plan of a batch, forward alone, checked (check_plan). A layer has attention, gate, order, dispatch,
/// expert, combine and i_order. Rank 0 schedules: the estimates for the next layer come with the dispatch, its
/// placement goes with the combine, and weights are copied beside what follows. A layer that `checks` sends its gate's
/// choices to rank 0 (check), which answers (broadcast); order waits for that, and experts for their weights. Throws
/// Unsupported for a layer with MP, ESP, stages, shared experts or an EP group that is not all ranks.
Plan serving_plan(const LayerCase& shape, std::span<const ServedLayer> layers);

/// Prices of what a cluster profile does not have.
struct ServingCosts {
  double estimate_s = 1e-4;             // popularity of one layer's experts, for a batch's tokens on a rank
  double schedule_s = 1e-4;             // placement of one layer on rank 0, before the gate
  double reschedule_s = 1e-4;           // placement after the gate
  double check_s = 0, broadcast_s = 0;  // 0: an AlltoAll of a few bytes
  double swap_bytes_per_s = 25e9;       // from host memory to a device: PCIe 4.0 x16 in practice
};

struct ServingSetup {
  int most_experts = 4;  // on a device (Lina, section 7.1)
  int list_length = 2;   // length of the compared lists of popular experts: 2 k (Lina, section 5.2)
  int64_t weight = 1;    // tokens that one token of a trace represents: neighbours with the same experts
  ServingCosts costs = {};
};

/// What serving a trace's batches took.
struct ServingResult {
  std::vector<double> batch_s;     // by batch
  std::vector<double> layer_s;     // by batch and layer, from the gate's start to the combine's end
  std::vector<double> alltoall_s;  // by batch and layer: dispatch and combine, without waiting for the slowest rank
  std::vector<double> idle;        // by batch: the share of it that a rank waits for others, mean over ranks
  std::vector<double> most_idle;   // likewise, of the rank that waits most
  int64_t estimated = 0;           // layers of batches that had an estimate
  int64_t right_lists = 0;         // of these, those whose list of popular experts was right, its order included
  int64_t placed_again = 0;        // of these, those placed again, as the list had other experts
  int64_t device_bytes = 0;        // weights of experts on the device that holds most at once
  int64_t host_bytes = 0;          // all experts' weights and the profile, on every host

  double accuracy() const { return share(right_lists); }
  double placed_again_share() const { return share(placed_again); }

 private:
  double share(int64_t count) const {
    return estimated == 0 ? 0 : static_cast<double>(count) / static_cast<double>(estimated);
  }
};

/// One layer of a batch.
struct PlacedLayer {
  ExpertPlacement placement;                 // where its experts compute
  std::vector<std::vector<int64_t>> tokens;  // as split_tokens returns them
  std::array<std::vector<int>, 2> swapped;   // experts by device: before the gate, behind it
};

/// A batch as it is to run.
struct PlannedBatch {
  const Plan* plan = nullptr;          // the Serving's
  const RankReplay* replay = nullptr;  // likewise, of the plan
  std::vector<PlacedLayer> layers;
  std::vector<double> seconds;  // of each task on each rank: [task * ranks + rank]
};

/// Returns whether the `count` most popular experts are the same, in whatever order: then a placement stands.
bool same_popular(std::span<const double> estimate, std::span<const double> found, int count);

class Serving {
 public:
  /// `pricer`: of one layer as serving_plan takes it, for the tokens of one rank; it must outlive this. Throws
  /// Unsupported likewise, Unpriced for what the profile lacks, BadInput for a `most_experts` that leaves experts
  /// without a place.
  Serving(const LayerPricer& pricer, const ServingSetup& setup);

  /// Serves all batches of a trace. `profile`: of other batches of the same source; null for variants without
  /// estimates. Throws BadInput for a trace of other sizes than the layer's.
  ServingResult run(const ServingVariant& variant, const RoutingTrace& trace, const PathProfile* profile);

  /// Plans one batch of such a trace, and adds to `counts` how its estimates turned out. Throws likewise.
  PlannedBatch plan(const ServingVariant& variant, const RoutingTrace& trace, const PathProfile* profile,
                    int64_t number, ServingResult& counts);

  /// Returns what a reader must know of the prices (LayerPricer::notes).
  PriceNotes notes() const;
  /// Bytes of one expert's weights.
  int64_t expert_bytes() const { return expert_bytes_; }

 private:
  struct Compiled {
    Plan plan;
    RankReplay replay;
  };
  struct Batch;
  const Compiled& compiled(const std::vector<ServedLayer>& layers);
  PlacedLayer place(Batch& batch, int layer) const;
  /// Returns the seconds of so many rows that a rank sends, or that one expert computes.
  double row_seconds(TaskKind kind, double rows) const;
  double seconds(const Task& task, const PlacedLayer& layer, size_t rank) const;
  void count_swaps(PlacedLayer& placed, const ExpertPlacement* before_gate) const;
  void add_memory(const std::vector<PlacedLayer>& layers, ServingResult& result) const;
  static void add_times(const PlannedBatch& batch, ServingResult& result);

  const LayerPricer& pricer_;
  ServingSetup setup_;
  LayerCase one_expert_;  // the layer with one expert a rank, which prices any rows of any expert
  LayerPricer expert_pricer_;
  ExpertPlacement home_;
  int64_t expert_bytes_ = 0;
  std::map<std::vector<ServedLayer>, Compiled> compiled_;
};

}  // namespace moe
