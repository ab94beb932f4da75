#pragma once
// A simulation of inference with MoE layers whose gates route tokens unevenly: a batch passes layer after layer, and
// experts may be placed anew for each layer (Lina, sections 5 and 6.2). All ranks form one expert-parallel group with
// one device each; a token has one expert per layer.
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
  bool balanced = false;   // every expert gets the same number of tokens, whatever the trace says
  bool estimates = false;  // experts are placed before the gate, by estimated popularity
  /// Experts are placed after the gate, by its choices, if the popular experts differ from the estimate.
  bool fine_tunes = false;
  bool places() const { return estimates || fine_tunes; }
};
/// Returns `uniform` (experts never move), `ideal` (uniform with a balanced gate), `lina-serve`, `no-estimation` (every
/// layer is placed only by its gate's choices) and `no-fine-tuning` (only by estimates).
std::span<const ServingVariant> serving_variants();

/// The serving tasks of one layer of a batch, in addition to the layer's own tasks.
struct ServedLayer {
  bool estimates_next = false;  // the next layer's experts are placed while this layer computes
  bool checks = false;          // the gate's choices go to the scheduler, which answers before rows are sent
  bool places_again = false;    // the scheduler places the experts by these choices
  auto operator<=>(const ServedLayer&) const = default;
};

/// Throws Unsupported for a layer with MP, ESP, pipeline stages, several experts per token, a shared expert or a
/// capacity, or if the EP group does not contain all ranks.
void check_served(const LayerCase& shape);

/// The chunk numbers of serve_schedule and serve_swap tasks: decided before the gate, or after it.
inline constexpr int kBeforeGate = 0, kAfterGate = 1;

/// Returns the checked plan (check_plan) of a batch's forward. A layer has attention, gate, order, dispatch, expert,
/// combine and i_order. Rank 0 places the experts: estimates for the next layer arrive with the dispatch, the placement
/// is sent with the combine, and weights are copied in parallel with the tasks that follow. In a layer with `checks`,
/// ranks send the gate's choices to rank 0 (serve_check), which answers (serve_broadcast); order waits for the answer,
/// and experts wait for their weights. Throws Unsupported as check_served().
Plan serving_plan(const LayerCase& shape, std::span<const ServedLayer> layers);

/// Prices of the serving tasks, for which cluster profiles have no rows.
struct ServingCosts {
  double estimate_s = 1e-4;             // estimate of one layer's popularity, for a batch's tokens on a rank
  double schedule_s = 1e-4;             // placement of one layer on rank 0, before the gate
  double reschedule_s = 1e-4;           // placement after the gate
  double check_s = 0, broadcast_s = 0;  // 0: an AlltoAll of a few bytes
  double swap_bytes_per_s = 25e9;       // from host memory to a device: PCIe 4.0 x16 in practice
};

struct ServingSetup {
  int max_experts = 4;  // limit per device (Lina, section 7.1)
  int list_length = 2;  // length of the compared lists of popular experts: 2 k (Lina, section 5.2)
  int64_t weight = 1;   // number of neighbouring tokens with the same experts that one token of a trace represents
  ServingCosts costs = {};
};

/// The results of serving the batches of a trace.
struct ServingResult {
  std::vector<double> batch_s;  // for each batch
  std::vector<double> layer_s;  // for each batch and layer, from the gate's start to the combine's end
  /// For each batch and layer: dispatch and combine, without waiting for the slowest rank.
  std::vector<double> alltoall_s;
  std::vector<double> idle;       // for each batch: share of its time that a rank waits for others, mean over ranks
  std::vector<double> most_idle;  // for each batch: that share on the rank that waits most
  int64_t estimated = 0;          // number of layers, over all batches, that had an estimate
  int64_t right_lists = 0;        // layers of these whose list of popular experts was right, including its order
  int64_t placed_again = 0;       // layers of these that were placed again, because the list had other experts
  int64_t device_bytes = 0;       // largest bytes of experts' weights on a device at any time
  int64_t host_bytes = 0;         // bytes of all experts' weights and the profile, on every host

  double accuracy() const { return share(right_lists); }
  double placed_again_share() const { return share(placed_again); }

 private:
  double share(int64_t count) const {
    return estimated == 0 ? 0 : static_cast<double>(count) / static_cast<double>(estimated);
  }
};

/// One layer of a batch.
struct PlacedLayer {
  ExpertPlacement placement;                 // placement with which its experts compute
  std::vector<std::vector<int64_t>> tokens;  // as split_tokens() returns them
  std::array<std::vector<int>, 2> swapped;   // number of experts copied to each device: before the gate, after it
};

/// A batch that is ready to run.
struct PlannedBatch {
  const Plan* plan = nullptr;          // owned by the Serving object
  const RankReplay* replay = nullptr;  // replay of the plan, owned by the Serving object
  std::vector<PlacedLayer> layers;
  std::vector<double> seconds;  // of each task on each rank, at index task * ranks + rank
};

/// Returns whether the `count` most popular experts are the same, in any order. If so, a placement need not change.
bool same_most_popular(std::span<const double> estimate, std::span<const double> found, int count);

class Serving {
 public:
  /// `pricer`: of a layer that serving_plan() supports, for the tokens of one rank; it must outlive the object. Throws
  /// Unsupported as serving_plan(), Unpriced if the profile lacks a row, BadInput if `max_experts` is too small.
  Serving(const LayerPricer& pricer, const ServingSetup& setup);

  /// Serves all batches of a trace. `profile`: of other batches from the same source; null for variants without
  /// estimates. Throws BadInput if the trace's sizes differ from the layer's.
  ServingResult run(const ServingVariant& variant, const RoutingTrace& trace, const PathProfile* profile);

  /// Plans one batch of a trace as run() does, and adds the number of right and wrong estimates to `counts`.
  PlannedBatch plan(const ServingVariant& variant, const RoutingTrace& trace, const PathProfile* profile,
                    int64_t number, ServingResult& counts);

  /// Returns the notes on the prices (LayerPricer::notes).
  PriceNotes notes() const;
  /// Returns the bytes of one expert's weights.
  int64_t expert_bytes() const { return expert_bytes_; }

 private:
  struct Compiled {
    Plan plan;
    RankReplay replay;
  };
  struct Batch;
  const Compiled& compiled(const std::vector<ServedLayer>& layers);
  PlacedLayer place(Batch& batch, int layer) const;
  /// Returns the seconds of `rows` rows that a rank sends, or that one expert computes.
  double row_seconds(TaskKind kind, double rows) const;
  double seconds(const Task& task, const PlacedLayer& layer, size_t rank) const;
  void count_swaps(PlacedLayer& placed, const ExpertPlacement* before_gate) const;
  void add_memory(const std::vector<PlacedLayer>& layers, ServingResult& result) const;
  static void add_times(const PlannedBatch& batch, ServingResult& result);

  const LayerPricer& pricer_;
  ServingSetup setup_;
  LayerCase one_expert_;  // the layer with one expert per rank, whose prices hold for any number of rows of an expert
  LayerPricer expert_pricer_;
  ExpertPlacement home_;
  int64_t expert_bytes_ = 0;
  std::map<std::vector<ServedLayer>, Compiled> compiled_;
};

}  // namespace moe
