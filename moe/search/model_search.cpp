#include "moe/search/model_search.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "moe/cost/fluid_replay.h"
#include "moe/cost/model_bound.h"

namespace moe {
namespace {

// The search keeps states by layer and grain: a MiB each, more where layers are so many that these would fill memory.
Partition exact(const PartitionProblem& problem) {
  constexpr int64_t kMostStates = int64_t{1} << 26;
  const int64_t grains = std::max<int64_t>(1, kMostStates / std::max<int64_t>(1, std::ssize(problem.layers)));
  return partition_exact(problem, {(problem.total_bytes() / kMiB / grains + 1) * kMiB});
}
Partition paper(const PartitionProblem& problem) { return partition_paper(problem); }

// Degrees of which no other is better with and without slices.
bool worse(const SplitPaths& a, const SplitPaths& b) {
  return a.neither >= b.neither && a.first >= b.first && a.second >= b.second && a.both >= b.both;
}

struct DegreePaths {
  std::vector<SplitPaths> paths;
  std::vector<int> degrees;
  void add(int degree, const SplitPaths& found) {
    for (const SplitPaths& other : paths)
      if (worse(found, other)) return;
    for (size_t i = paths.size(); i-- > 0;)
      if (worse(paths[i], found)) {
        paths.erase(paths.begin() + static_cast<std::ptrdiff_t>(i));
        degrees.erase(degrees.begin() + static_cast<std::ptrdiff_t>(i));
      }
    paths.push_back(found);
    degrees.push_back(degree);
  }
};

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

}  // namespace

std::span<const PartitionStrategy> partition_strategies() {
  static constexpr std::array kRows{
      PartitionStrategy{"exact", "dynamic programming over the bytes that wait", exact},
      PartitionStrategy{"paper", "FSMoE's two steps, the second by differential evolution", paper},
      PartitionStrategy{"step1", "FSMoE's first step alone: what each window hides", partition_step1},
      PartitionStrategy{"none", "all gradients after the backward", partition_none}};
  return kRows;
}

ModelResult ModelSearch::tune(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model,
                              const PartitionStrategy& strategy, DegreeChoice choice) {
  choice = within_rows(choice, pricer);
  const LayerResult layer = layers_.tune(schedule, pricer, choice);
  const Schedule& planned = layer.decision.variant ? *layer.decision.variant : schedule;
  ModelResult result;
  result.schedule = schedule.name;
  result.variant = layer.decision.variant;
  ModelShape decided = model;
  decided.shape = decided_case(model.shape, layer.decision);
  const LayerPricer decided_pricer(pricer.profile(), decided.shape, pricer.options());
  const auto [first, last] = layers_of_stage(decided, 0);
  check_size(planned, decided, layer.decision.degree_forward, 1);  // before a search over all layers
  ModelDecision& decision = result.decision;
  decision.degree_forward = layer.decision.degree_forward;
  decision.degree_backward = layer.decision.degree_backward;
  decision.order_forward = layer.decision.order_forward;
  decision.micro_op_bytes = layer.decision.micro_op_bytes;
  decision.backwards.assign(static_cast<size_t>(last - first), {layer.decision.degree_backward, 0, 0, {}});
  if (splits_gradients(planned) && decided_pricer.has(GroupKind::dp))
    split(planned, decided_pricer, strategy, choice, result);
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
  result.bound_s = model_bound(planned, decided_pricer, decided);
  return result;
}

// One r_b a layer and a split of what waits there; a schedule with one degree for both phases keeps it.
void ModelSearch::split(const Schedule& schedule, const LayerPricer& pricer, const PartitionStrategy& strategy,
                        const DegreeChoice& choice, ModelResult& result) {
  DegreePaths tried;
  const bool apart = schedule.degrees == DegreePolicy::apart;
  const int fixed = apart ? choice.backward : result.decision.degree_forward;
  const int most = largest_degree(pricer);
  for (int r = fixed > 0 ? fixed : 1; r <= (fixed > 0 ? fixed : most); ++r)
    tried.add(r, layers_.backward_paths(schedule, pricer, r));
  const auto alone = std::ranges::min_element(tried.paths, {}, &SplitPaths::neither) - tried.paths.begin();
  result.decision.degree_backward = tried.degrees[static_cast<size_t>(alone)];
  const int layers = static_cast<int>(result.decision.backwards.size());
  result.partition = strategy.solve(partition_problem(schedule, pricer, layers, tried.paths));
  for (size_t i = 0; i < result.decision.backwards.size(); ++i) {
    const LayerSlices& slices = result.partition.layers[i];
    const auto time_of = [&](const SplitPaths& paths) {
      return paths.seconds(pricer.slice_seconds(slices.moe_bytes), pricer.slice_seconds(slices.dense_bytes));
    };
    const auto best = std::ranges::min_element(tried.paths, {}, time_of) - tried.paths.begin();
    result.decision.backwards[i] = {tried.degrees[static_cast<size_t>(best)], slices.moe_bytes, slices.dense_bytes, {}};
  }
}

}  // namespace moe
