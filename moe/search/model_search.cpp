#include "moe/search/model_search.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "moe/cost/fluid_replay.h"
#include "moe/search/model_bound.h"

namespace moe {
namespace {

Partition exact(const PartitionProblem& problem) { return partition_exact(problem); }
Partition paper(const PartitionProblem& problem) { return partition_paper(problem); }

// Where pieces of gradients go on each stage's lane, as priority lets them: before which task of which layer's
// backward.
class PieceFreezer {
 public:
  PieceFreezer(const Plan& plan, const std::vector<double>& seconds, const Schedule& schedule)
      : plan_(plan),
        seconds_(seconds),
        holds_(schedule.holds_micro_ops && plan.groups[static_cast<size_t>(GroupKind::ep)].size > 1) {}

  // By stage, then place in its backward. `plan` has all pieces at the end.
  std::vector<std::vector<std::vector<int>>> run() {
    const Structure& structure = *plan_.structure;
    std::vector<double> ends(structure.tasks.size()), lane_end(structure.lanes.size());
    for (const Task& task : structure.tasks) collect(task);
    for (const Task& task : structure.tasks) {
      double ready = 0;
      for (const int id : task.after) ready = std::max(ready, ends[static_cast<size_t>(id)]);
      double& end = lane_end[static_cast<size_t>(task.lane)];
      if (task.kind != TaskKind::gradient) before(task, ready, end, ends);
      if (task.kind == TaskKind::gradient && sent_.contains(task.id)) {
        ends[static_cast<size_t>(task.id)] = sent_[task.id];
        continue;
      }
      end = ends[static_cast<size_t>(task.id)] = std::max(ready, end) + seconds_[static_cast<size_t>(task.work_class)];
    }
    return gaps_;
  }

 private:
  struct Lane {
    std::vector<const Task*> pieces;
    size_t next = 0;
    int layer = -1, passed = 0, first_layer = -1;
  };

  void collect(const Task& task) {
    if (task.kind == TaskKind::gradient) lanes_[task.lane].pieces.push_back(&task);
  }

  // Starts pieces while their lane is idle before `task` is ready.
  void before(const Task& task, double ready, double& end, const std::vector<double>& ends) {
    const auto found = lanes_.find(task.lane);
    const bool last = task.micro_batch + 1 == plan_.micro_batches && task.phase == Phase::backward;
    if (found == lanes_.end() || !last || task.kind == TaskKind::send || task.kind == TaskKind::recv) return;
    Lane& lane = found->second;
    if (lane.first_layer < 0) lane.first_layer = task.layer;
    if (lane.layer != task.layer) lane.layer = task.layer, lane.passed = 0;
    const size_t stage = static_cast<size_t>(plan_.structure->lanes[static_cast<size_t>(task.lane)].stage);
    const size_t place = static_cast<size_t>(lane.first_layer - task.layer);
    if (gaps_.size() <= stage) gaps_.resize(stage + 1);
    if (gaps_[stage].size() <= place) gaps_[stage].resize(place + 1);
    while (lane.next < lane.pieces.size() && (lane.passed > 0 || !holds_)) {
      const Task& piece = *lane.pieces[lane.next];
      const int made_by =
          plan_.gradients[static_cast<size_t>(plan_.slices[static_cast<size_t>(piece.slice)].gradient)].made_by;
      // A piece reaches only back to layers whose backward has ended; its maker's time is known by then.
      const double start = std::max(end, ends[static_cast<size_t>(made_by)]);
      if (made_by >= task.id || start >= ready) break;
      end = start + seconds_[static_cast<size_t>(piece.work_class)];
      sent_[piece.id] = end;
      gaps_[stage][place].push_back(lane.passed);
      ++lane.next;
    }
    ++lane.passed;
  }

  const Plan& plan_;
  const std::vector<double>& seconds_;
  bool holds_;
  std::map<int, Lane> lanes_;
  std::map<int, double> sent_;
  std::vector<std::vector<std::vector<int>>> gaps_;
};

// Of one stage: its layers without gradients, whatever their degrees; gradients after them, or all that their lane
// does.
double stage_bound(const Schedule& schedule, const LayerPricer& pricer, int layers, int micro_batches) {
  BoundShape forward = bound_shape(schedule, pricer.groups(), Phase::forward);
  BoundShape backward = bound_shape(schedule, pricer.groups(), Phase::backward);
  const int lane = std::exchange(backward.gradient_lane, -1);
  const PhaseBound f(schedule, forward, pricer), b(schedule, backward, pricer);
  const double each = layers * micro_batches;
  const double seconds = each * (f.degree_free().seconds + b.degree_free().seconds);
  if (lane < 0) return seconds;
  const double gradients = pricer.gradient_seconds(layers * pricer.gradient_bytes());
  if (schedule.gradients == GradientPolicy::after) return seconds + gradients;
  return std::max(seconds, gradients + each * (f.busy(lane) + b.busy(lane)));
}

}  // namespace

std::span<const PartitionStrategy> partition_strategies() {
  static constexpr std::array kRows{
      PartitionStrategy{"exact", "dynamic programming, beside all others replayed; under contention from the best down",
                        exact},
      PartitionStrategy{"paper", "FSMoE's two steps, the second by differential evolution", paper},
      PartitionStrategy{"step1", "FSMoE's first step alone: what each window hides", partition_step1},
      PartitionStrategy{"none", "all gradients after the backward", partition_none}};
  return kRows;
}

ModelResult ModelSearch::tune(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model,
                              const PartitionStrategy& strategy, DegreeChoice choice) {
  const LayerResult layer = layers_.tune(schedule, pricer, choice);
  const Schedule& planned = layer.decision.variant ? *layer.decision.variant : schedule;
  ModelResult result;
  result.schedule = schedule.name;
  result.variant = layer.decision.variant;
  ModelShape decided = model;
  decided.shape = decided_case(model.shape, layer.decision);
  const LayerPricer decided_pricer(pricer.profile(), decided.shape, pricer.options());
  const auto [first, last] = layers_of_stage(decided, 0);
  ModelDecision& decision = result.decision;
  decision.degree_forward = layer.decision.degree_forward;
  decision.degree_backward = layer.decision.degree_backward;
  decision.order_forward = layer.decision.order_forward;
  decision.micro_op_bytes = layer.decision.micro_op_bytes;
  decision.backwards.assign(static_cast<size_t>(last - first), {layer.decision.degree_backward, 0, 0, {}});
  const Asked asked{planned, decided_pricer, decided, strategy, choice};
  if (splits_gradients(planned) && decided_pricer.has(GroupKind::dp)) split(asked, layer.decision, result);
  result.plan = build_model_plan(planned, decided, decision);
  std::vector<double> seconds = price(decided_pricer, result.plan);
  if (planned.gradients == GradientPolicy::micro_ops && decided_pricer.has(GroupKind::dp)) {
    const auto gaps = PieceFreezer(result.plan, seconds, planned).run();
    for (size_t i = 0; !gaps.empty() && i < gaps.front().size(); ++i) decision.backwards[i].gaps = gaps.front()[i];
    result.plan = build_model_plan(planned, decided, decision);
    seconds = price(decided_pricer, result.plan);
  }
  result.plan.schedule = schedule.name;
  result.timeline = timeline_of(result.plan, seconds, pricer.profile().contention);
  for (const Task& task : result.plan.tasks()) {
    if (task.phase == Phase::forward)
      result.last_forward_s = std::max(result.last_forward_s, result.timeline.end_s[static_cast<size_t>(task.id)]);
    if (task.kind == TaskKind::attention) result.last_backward = task.id;
  }
  result.bound_s = result.at_least_s = stage_bound(planned, decided_pricer, last - first, model.micro_batches);
  const bool decides_places = splits_gradients(planned) || planned.gradients == GradientPolicy::after;
  if (planned.flow == Flow::sharded && decides_places && model.micro_batches == 1 && decided.shape.parallel.pp == 1)
    result.at_least_s = least_seconds(asked, last - first);
  return result;
}

double ModelSearch::least_seconds(const Asked& asked, int layers) {
  const auto& [schedule, pricer, model, strategy, choice] = asked;
  PricedPasses passes{{}, {}, schedule.degrees != DegreePolicy::apart, schedule.searched_order};
  const int most = schedule.degrees == DegreePolicy::one ? 1 : largest_degree(pricer);
  for (const Phase phase : {Phase::forward, Phase::backward}) {
    int fixed = phase == Phase::forward ? choice.forward : choice.backward;
    if (passes.same_degree) fixed = std::max(choice.forward, choice.backward);
    auto& of_phase = phase == Phase::forward ? passes.forward : passes.backward;
    for (int r = fixed > 0 ? fixed : 1; r <= (fixed > 0 ? fixed : most); ++r)
      of_phase.push_back(layers_.pass(schedule, pricer, r, phase));
  }
  return least_model_seconds(pricer, layers, passes, splits_gradients(schedule));
}

}  // namespace moe
