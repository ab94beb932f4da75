#pragma once
// Ranking of schedules for one layer or one model on a cluster: each at its best degrees, the fastest first.
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

/// A schedule with its best degrees and its predicted times.
struct RankedSchedule {
  const Schedule* schedule = nullptr;
  const Schedule* variant = nullptr;  // the variant whose plan it is, if the schedule chooses among several
  std::optional<Refusal> refusal;     // why the schedule is unusable; the fields below are then unset
  int degree_forward = 0;
  std::pair<int, int> degrees_backward;  // least and largest degree of a model's layers
  int64_t gar_in_moe_bytes = 0;          // for a layer: bytes of gradients sent inside its MoE part
  int64_t gar_after_bytes = 0;           // bytes of gradients sent after everything else
  double forward_s = 0, backward_s = 0;
  /// Seconds of summing the gradients of replicated experts over EDP. The sum runs after the pass, and only schedules
  /// that pack experts have it in their plans.
  double expert_sums_s = 0;
  /// Seconds that a model's output projection adds (head_seconds); plans do not contain it. 0 if the model has none, or
  /// if the profile lacks its price, which `notes` then reports.
  double head_s = 0;
  double bound_s = 0;       // lower bound on the total time
  double gap = 0;           // upper bound on the share of time that better decisions of this schedule could save
  double memory_bytes = 0;  // memory of one rank
  std::map<LaneKind, double> busy_s;  // work of each kind of lane, on the stage where it is largest
  double hidden = 0;                  // share of the communication that overlaps with computation of its stage
  std::vector<std::pair<std::string, double>> critical;  // shares of the critical path by kind of task, largest first
  PriceNotes notes;                                      // what replaced prices that the profile lacks (pricer.h)
  bool is_usable() const { return !refusal; }
  const Schedule& planned_as() const { return variant != nullptr ? *variant : *schedule; }
  double pass_s() const { return forward_s + backward_s; }
  double total_s() const { return pass_s() + expert_sums_s + head_s; }
};

/// The input of a ranking. A layer is a model with one layer and one micro-batch.
struct RankingRequest {
  const commands::ChosenModel& chosen;
  const Profile& profile;
  DegreeChoice degrees;
  PricingOptions pricing;
  const RankedSchedule* known = nullptr;  // an earlier planned row of this request; null: none
  bool checked = true;  // checks plans of models (check_plan); false in a search for a shape, which makes many plans
  /// Deadline of rank() and neighbours(). Once rank() has a usable schedule, they skip a plan that would end after the
  /// deadline if it took as long as the longest plan so far.
  std::optional<std::chrono::steady_clock::time_point> deadline = {};
};

/// Returns whether the model is a single layer with one micro-batch on one stage, which is planned as a layer.
bool is_one_layer(const commands::ChosenModel& chosen);

/// Returns whether two times are equal up to rounding.
bool is_equally_fast(double a_s, double b_s);

/// The share by which times of equally fast plans may differ; the error of a replay is far larger.
inline constexpr double kEquallyFast = 0.01;

/// The quantities that decide between equally fast plans.
struct PlanCost {
  double total_s = 0, memory_bytes = 0;
  int chunks = 0;  // number of chunks of forward and backward together
};
PlanCost cost_of(const RankedSchedule& row);
/// Returns the index of the plan to recommend: of the plans within kEquallyFast of the fastest, the one with the least
/// memory; ties go to the fewest chunks, then to the fastest, then to the first.
size_t preferred(const std::vector<PlanCost>& plans);

/// Returns RankedSchedule::expert_sums_s. Throws Unsupported if the profile lacks the price.
double expert_sums_s(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model);

/// Returns the seconds of the output projection for one micro-batch, with the communication of MP ranks in the
/// schedule's flow, which its variants share; 0 if no vocabulary is known. Throws Unpriced if the profile lacks a row.
double head_seconds(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model, int64_t vocabulary);
/// Returns the seconds that the projection adds to a step: a pipeline passes all stages once, and its slowest stage
/// once more for every other micro-batch. `pass_s`: the time without the head; none: returns a lower bound.
double all_heads_seconds(const ModelShape& model, double head_s, std::optional<double> pass_s);

/// A schedule's plan, and its replay.
struct PlannedTimeline {
  Plan plan;
  Timeline timeline;
};

/// Plans one schedule. If it is unusable, the row's `refusal` has the reason. If the profile gives a rank's memory, the
/// plan must fit into it. `planned`: if not null, receives the plan of a usable schedule.
RankedSchedule ranked(const RankingRequest& request, const Schedule& schedule, PlannedTimeline* planned = nullptr);

/// Returns all schedules with their plans: first the preferred one (that of `known`, if it is as fast as
/// the fastest), then the others by time, with ties in the order of `schedules`, and the refused ones
/// last.
std::vector<RankedSchedule> rank(const RankingRequest& request, const std::vector<const Schedule*>& schedules);

/// The extra time of a degree one step away from the winner's, as a share of the winner's time.
struct Neighbour {
  std::optional<Phase> phase;  // none: both phases, for a schedule with one degree
  int degree = 0;
  double slower = 0;  // relative increase of the time; 0.02: 2 % longer
};
/// Returns the neighbours of the winner's degrees that are valid and are planned before the deadline. When one phase's
/// degree changes, the other phase's is chosen as in the request. In a model, all layers get the same backward degree:
/// one below the least of the winner's, or one above its largest. The neighbours of `wave` are those of its own orders,
/// or of the schedule whose plan it took.
std::vector<Neighbour> neighbours(const RankingRequest& request, const RankedSchedule& winner);

/// The rates of a model's training step on one rank.
struct StepRates {
  double tokens_per_s = 0;
  double flops_per_s = 0;                  // FLOPs that the model needs (moe/shape/volumes.h) per second
  std::optional<double> utilisation = {};  // share of the rank's peak; none: the profile has no peak for the type
};

/// Returns the rates of a step of `step_s` seconds; none for a layer or a stack without a model.
std::optional<StepRates> rates_of(const commands::ChosenModel& chosen, const Profile& profile, double step_s);

/// Returns the FLOPs of a step as Megatron-LM counts them for the TFLOP/s of its log: those of step_flops() (volumes.h)
/// without the gate, with half of the attention scores because of the causal mask (windows are ignored), and with the
/// vocabulary padded to a multiple of 128 MP words. `counts_masked`: counts all scores, as older releases do. Source:
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
