#pragma once
// One layer or one model on a cluster: every schedule at its best degrees, the fastest first.
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "commands/shared/chosen_model.h"
#include "moe/prices/pricer.h"
#include "moe/search/degrees.h"
#include "moe/simulator/simulator.h"

namespace moe::tuner {

/// A schedule as it would run.
struct RankedSchedule {
  const Schedule* schedule = nullptr;
  const Schedule* variant = nullptr;  // whose plan it is, of one that chooses among others
  std::optional<Refusal> refusal;     // why it can't be planned, priced or held; nothing below holds then
  int degree_forward = 0;
  std::pair<int, int> degrees_backward;  // least and most of a model's layers
  int64_t gar_in_moe_bytes = 0;          // of a layer: gradients sent inside its MoE part
  int64_t gar_after_bytes = 0;           // and behind everything else
  double forward_s = 0, backward_s = 0;
  /// The time of summing the gradients of replicated experts over EDP, which runs after the pass and is in no plan
  /// but those of schedules that pack experts.
  double expert_sums_s = 0;
  /// Seconds that a model's output projection adds, which is in no plan (head_seconds); 0: it has none, or the
  /// profile no price, which `notes` say.
  double head_s = 0;
  double bound_s = 0;                 // of all of these
  double gap = 0;                     // the share by which a better decision of this schedule may be faster, at most
  double memory_bytes = 0;            // of a rank
  std::map<LaneKind, double> busy_s;  // of the stage whose lanes of that kind work most
  double hidden = 0;                  // the share of communication that runs while its stage computes
  std::vector<std::pair<std::string, double>> critical;  // kinds of tasks on the critical path: shares, largest first
  PriceNotes notes;  // what its prices were taken from that the profile has not (pricer.h)
  bool is_usable() const { return !refusal; }
  const Schedule& planned_as() const { return variant != nullptr ? *variant : *schedule; }
  double pass_s() const { return forward_s + backward_s; }
  double total_s() const { return pass_s() + expert_sums_s + head_s; }
};

/// What is ranked, and how. A layer is a model of one, with one micro-batch.
struct RankingRequest {
  const commands::ChosenModel& chosen;
  const Profile& profile;
  DegreeChoice degrees;
  PricingOptions pricing;
  const RankedSchedule* known = nullptr;  // of this request: not planned anew
  bool checked = true;                    // plans of models are checked (check_plan); a search for a shape times many
  /// By when rank() and neighbours() are to be done: once rank() has a schedule that can be used, they make no plan
  /// that would end later if it took as long as the longest so far.
  std::optional<std::chrono::steady_clock::time_point> due = {};
};

/// Returns whether it is one layer, once, on one stage, which is planned as such.
bool one_layer(const commands::ChosenModel& chosen);

/// Returns whether two times are one, but for rounding.
bool same_time(double a_s, double b_s);

/// The share by which times may differ and plans still count as equally fast: far less than what a replay leaves out.
inline constexpr double kEquallyFast = 0.01;

/// What decides between plans that are equally fast.
struct PlanCost {
  double total_s = 0, memory_bytes = 0;
  int chunks = 0;  // forward and backward
};
PlanCost cost_of(const RankedSchedule& row);
/// Returns the index of the plan to recommend. Of those within kEquallyFast of the fastest it has the least memory, of
/// these the fewest chunks, of these it is the fastest and comes first.
size_t preferred(const std::vector<PlanCost>& plans);

/// Returns RankedSchedule::expert_sums_s. Throws Unsupported where the profile has no price for it.
double expert_sums_s(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model);

/// Returns the seconds of the output projection for one micro-batch, with what MP ranks exchange for it in the
/// schedule's flow, which its variants share; 0: no vocabulary is known. Throws Unpriced where the profile lacks a row.
double head_seconds(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model, int64_t vocabulary);
/// Returns what the projection adds to a step. A pipeline passes all stages once, and its slowest stage once more for
/// every other micro-batch. `pass_s`: the time without the head; empty: returns what it is at least.
double all_heads_seconds(const ModelShape& model, double head_s, std::optional<double> pass_s);

/// A schedule's plan, and its replay.
struct PlannedTimeline {
  Plan plan;
  Timeline timeline;
};

/// Plans one schedule. Why it can't be used is in `refusal`; a rank has the profile's memory, where that says.
/// `planned`: takes the plan, if there is one.
RankedSchedule ranked(const RankingRequest& request, const Schedule& schedule, PlannedTimeline* planned = nullptr);

/// Returns all schedules as they would run: the preferred one first (that of `known`, if it is equally fast as the
/// fastest), the others by their time; of those that take equally long the one that comes first in `schedules`; the
/// refused ones last.
std::vector<RankedSchedule> rank(const RankingRequest& request, const std::vector<const Schedule*>& schedules);

/// How much more than the winner a degree one step away takes, as a share.
struct Neighbour {
  std::optional<Phase> phase;  // none: of both, where a schedule has one degree
  int degree = 0;
  double slower = 0;  // 0.02: 2 % longer
};
/// Returns the neighbours that the schedule and the layer have and that are planned in time. The other phase is as free
/// as it was; of a model the backward of every layer has a degree next to those that it had. Those of `wave` are its
/// own orders, or the plans of the schedule whose plan it took.
std::vector<Neighbour> neighbours(const RankingRequest& request, const RankedSchedule& winner);

/// What a model's step comes to on one rank: the numbers by which trainings are compared.
struct StepRates {
  double tokens_per_s = 0;                 // of a rank
  double flops_per_s = 0;                  // of a rank, of the FLOPs that the model needs (moe/shape/volumes.h)
  std::optional<double> utilisation = {};  // of the rank's peak; none: the profile says no peak of the model's type
};

/// Returns the rates of a step of so many seconds; none for layers that are no model's.
std::optional<StepRates> rates_of(const commands::ChosenModel& chosen, const Profile& profile, double step_s);

/// Returns the FLOPs of a step as Megatron-LM counts them for the TFLOP/s of its log: those of step_flops() (volumes.h)
/// without the gate, of scores the half that a causal mask leaves, whatever window there is, and of a vocabulary that
/// is padded to a multiple of 128 MP words. `counts_masked`: of all scores, as its older releases count. Source:
/// num_floating_point_operations in megatron/training/training.py of NVIDIA/Megatron-LM at 001b00c27.
double megatron_flops(const commands::ChosenModel& chosen, bool counts_masked = false);

/// Sets "tokens_per_s_per_rank", "model_flops_per_s_per_rank" and, if known, "model_flops_utilisation" by set(key,
/// value).
void set_rates(const std::optional<StepRates>& rates, const auto& set) {
  if (!rates) return;
  set("tokens_per_s_per_rank", rates->tokens_per_s);
  set("model_flops_per_s_per_rank", rates->flops_per_s);
  if (rates->utilisation) set("model_flops_utilisation", *rates->utilisation);
}

}  // namespace moe::tuner
