// The partition problem of a stage's backward, with seconds from replays, and the comparison of strategies by `exact`.
#include "moe/search/detail/model_partition.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "moe/search/detail/lane_order.h"

namespace moe::search {
namespace {

// Returns whether a layer's seconds are a function of one slice plus a function of the other: in every backward, the
// extra seconds of a path through both slices are the sum of those through one, and the dense part hides the same time
// at every degree.
bool separable(const std::vector<SplitPaths>& by_degree) {
  const auto hidden_s = [](const SplitPaths& p) { return p.neither - p.second; };
  return std::ranges::all_of(by_degree, [&](const SplitPaths& p) {
    const double rounding_s = 1e-9 * p.neither;
    return std::abs(p.first - p.both - hidden_s(p)) <= rounding_s &&
           std::abs(hidden_s(p) - hidden_s(by_degree.front())) <= rounding_s;
  });
}

// Adds `bytes` rounded down to whole elements, and the next multiple.
void add_bend(double bytes, int64_t element, std::vector<int64_t>& bends) {
  if (bytes > 1e15) return;
  const int64_t floor = static_cast<int64_t>(bytes) / element * element;
  bends.insert(bends.end(), {floor, floor + element});
}

// Returns knots (bytes, seconds) of the AllReduce, which is linear between them and beyond the last one.
Points gradient_knots(const LayerPricer& pricer) {
  Points knots;
  const auto add = [&](double bytes) {
    knots.push_back({bytes, pricer.gradient_seconds(static_cast<int64_t>(bytes))});
  };
  add(0);
  for (const double bytes : pricer.gradient_breakpoints()) add(bytes);
  add(knots.back()[0] + 1e6);
  return knots;
}

// Returns the number of bytes whose AllReduce takes `seconds`; 0 if every AllReduce takes longer.
double bytes_taking(double seconds, const Points& knots) {
  if (seconds <= knots.front()[1]) return 0;
  const auto reaches = std::ranges::find_if(knots, [&](const auto& knot) { return knot[1] >= seconds; });
  const auto end = reaches == knots.end() ? knots.end() - 1 : reaches;
  const auto& [from, from_s] = *(end - 1);
  const auto& [to, to_s] = *end;
  return from + (seconds - from_s) / (to_s - from_s) * (to - from);
}

// Returns whether each of a's paths is at least as long as b's, so `a` is no faster with any slices.
bool is_worse(const SplitPaths& a, const SplitPaths& b) {
  return a.neither >= b.neither && a.first >= b.first && a.second >= b.second && a.both >= b.both;
}

// Returns the partitions of all problems, concatenated.
Partition solved(const PartitionStrategy& strategy, const std::vector<PartitionProblem>& problems) {
  Partition all = strategy.solve(problems.front());
  for (size_t i = 1; i < problems.size(); ++i) {
    const Partition next = strategy.solve(problems[i]);
    all.layers.insert(all.layers.end(), next.layers.begin(), next.layers.end());
    all.tail_bytes += next.tail_bytes;
    all.seconds += next.seconds;
    all.evaluations += next.evaluations;
    all.search_s += next.search_s;
  }
  return all;
}

PartitionProblem problem_without_layers(const LayerPricer& pricer) {
  PartitionProblem problem;
  problem.allreduce_seconds = [&pricer](int64_t bytes) { return pricer.slice_seconds(bytes); };
  problem.is_straight = pricer.gradient_breakpoints().empty();
  problem.element_bytes = bytes_of(pricer.shape().layer.dtype);
  return problem;
}

void sort_unique(std::vector<int64_t>& bends) {
  std::erase_if(bends, [](int64_t bytes) { return bytes <= 0; });
  std::ranges::sort(bends);
  bends.erase(std::unique(bends.begin(), bends.end()), bends.end());
}

}  // namespace

PartitionLayer partition_layer(const Schedule& schedule, const LayerPricer& pricer,
                               const std::vector<SplitPaths>& by_degree) {
  const bool dense = pricer.outline().dense, in_moe = schedule.gradients == GradientPolicy::adaptive && !dense;
  PartitionLayer layer;
  layer.key = fmt::format("{} W{}", dense ? "dense" : "MoE", pricer.shape().layer.window);
  layer.has_moe_part = !dense;
  layer.made_bytes = pricer.gradient_bytes();
  layer.seconds = [&pricer, &by_degree, in_moe](int64_t moe_bytes, int64_t dense_bytes) {
    double least = std::numeric_limits<double>::infinity();
    if (!in_moe && moe_bytes > 0) return least;
    const double moe_s = pricer.slice_seconds(moe_bytes), dense_s = pricer.slice_seconds(dense_bytes);
    for (const SplitPaths& paths : by_degree) least = std::min(least, paths.seconds(moe_s, dense_s));
    return least;
  };
  layer.breakpoints_known = true;
  if (in_moe && !separable(by_degree))
    layer.best_splits = [&pricer, &by_degree](int64_t bytes) { return best_splits(by_degree, pricer, bytes); };
  const SplitPaths* best = &by_degree.front();
  const Points knots = gradient_knots(pricer);
  const int64_t element = bytes_of(pricer.shape().layer.dtype);
  for (const SplitPaths& flat : by_degree) {
    if (flat.neither < best->neither) best = &flat;
    add_bend(bytes_taking(flat.neither - flat.second, knots), element, layer.dense_breakpoints);
    add_bend(bytes_taking(flat.first - flat.both, knots), element, layer.dense_breakpoints);
    for (const SplitPaths& steep : by_degree)
      if (in_moe) add_bend(bytes_taking(flat.neither - steep.first, knots), element, layer.moe_breakpoints);
    if (in_moe) add_bend(bytes_taking(flat.second - flat.both, knots), element, layer.moe_breakpoints);
  }
  for (const double bytes : pricer.gradient_breakpoints())
    for (auto* bends : {&layer.moe_breakpoints, &layer.dense_breakpoints}) add_bend(bytes, element, *bends);
  sort_unique(layer.moe_breakpoints);
  sort_unique(layer.dense_breakpoints);
  layer.moe_window_s = in_moe ? best->neither - best->first : 0;
  layer.dense_window_s = best->neither - best->second;
  return layer;
}

PartitionLayers partition_layers(const Schedule& schedule, const KindReplays& kinds, const KindOptions& options) {
  PartitionLayers layers;
  for (const LayerKind kind : kAllLayerKinds)
    if (kinds[kind]) layers[kind] = partition_layer(schedule, kinds[kind]->pricer, options[kind].paths);
  return layers;
}

PartitionProblem partition_problem(const Schedule& schedule, const LayerPricer& pricer, int layers,
                                   const std::vector<SplitPaths>& by_degree) {
  PartitionProblem problem = problem_without_layers(pricer);
  problem.layers.assign(layers, partition_layer(schedule, pricer, by_degree));
  return problem;
}

PartitionProblem stage_problem(const ModelQuery& query, const PartitionLayers& layers, int stage) {
  const LayerPricer& pricer = query.pricer();
  const StageSplit split = query.model.split();
  PartitionProblem problem = problem_without_layers(pricer);
  for (int place = 0; place < layers_in(split, stage); ++place)
    problem.layers.push_back(layers[query.model.kind(nth_backward(split, stage, place))]);
  problem.waiting_bytes = waiting_bytes(pricer, query.model);
  return problem;
}

void BackwardOptions::add(const BackwardOption& option, const SplitPaths& found) {
  for (const SplitPaths& other : paths)
    if (is_worse(found, other)) return;
  for (size_t i = paths.size(); i-- > 0;)
    if (is_worse(paths[i], found)) {
      paths.erase(paths.begin() + static_cast<std::ptrdiff_t>(i));
      options.erase(options.begin() + static_cast<std::ptrdiff_t>(i));
    }
  paths.push_back(found);
  options.push_back(option);
}

void BackwardOptions::keep_best_options() {
  if (paths.size() <= kMaxBackwards) return;
  constexpr int kSteps = 32;  // steps of the grid for each slice, up to the longest pass: no pass hides a longer slice
  struct Point {
    double moe_s, dense_s, min_s = std::numeric_limits<double>::infinity(), kept_s = min_s;
    size_t best = 0;
    double missed() const { return kept_s / min_s; }
  };
  const double step_s = std::ranges::max(paths, {}, &SplitPaths::neither).neither / kSteps;
  std::vector<Point> points;
  for (int moe = 0; moe <= kSteps; ++moe)
    for (int dense = 0; dense <= kSteps; ++dense) {
      Point& point = points.emplace_back(Point{moe * step_s, dense * step_s});
      for (size_t i = 0; i < paths.size(); ++i)
        if (const double seconds = paths[i].seconds(point.moe_s, point.dense_s); seconds < point.min_s) {
          point.best = i;
          point.min_s = seconds;
        }
    }
  BackwardOptions few;
  while (few.paths.size() < kMaxBackwards) {
    const Point& next = *std::ranges::max_element(points, {}, &Point::missed);
    if (next.missed() <= 1) break;
    const size_t best = next.best;
    few.options.push_back(options[best]);
    few.paths.push_back(paths[best]);
    for (Point& point : points) point.kept_s = std::min(point.kept_s, paths[best].seconds(point.moe_s, point.dense_s));
  }
  *this = std::move(few);
}

const BackwardOption& BackwardOptions::best_for(LayerSlices slices, const LayerPricer& pricer) const {
  const double moe_s = pricer.slice_seconds(slices.moe_bytes), dense_s = pricer.slice_seconds(slices.dense_bytes);
  const auto seconds = [&](const SplitPaths& p) { return p.seconds(moe_s, dense_s); };
  return options[std::ranges::min_element(paths, {}, seconds) - paths.begin()];
}

ModelDecision decided(const ModelShape& model, const Partition& partition,
                      const std::function<BackwardOption(LayerKind, LayerSlices)>& best_for, ModelDecision decision) {
  for (size_t i = 0; i < decision.backwards.size(); ++i) {
    const LayerSlices& slices = partition.layers[i];
    const BackwardOption option = best_for(decided_kind(model, i), slices);
    decision.backwards[i] = {option.degree, slices.moe_bytes, slices.dense_bytes, {}, option.order};
  }
  return decision;
}

BackwardOptions backward_options(const ModelQuery& query, LayerReplay& layer, int degree_forward) {
  BackwardOptions tried;
  const int fixed = query.schedule().degrees == DegreePolicy::apart ? query.choice.backward : degree_forward;
  // A larger degree keeps lanes busy longer, so if none is faster without gradients, none is faster with them.
  const PhaseBound bound = layer.bound(Phase::backward);
  double least = std::numeric_limits<double>::infinity();
  for (const int r : tried_degrees(fixed, layer.pricer)) {
    if (no_faster_degree_from(r, least, [&](int degree) { return bound.pass_from(degree); })) break;
    const SplitPaths paths = layer.backward_paths({r});
    least = std::min(least, paths.neither);
    tried.add({r}, paths);
    for (const LaneOrder& order : backward_orders(layer, r)) tried.add({r, order}, layer.backward_paths({r, order}));
  }
  tried.keep_best_options();
  return tried;
}

KindOptions kind_options(const ModelQuery& query, KindReplays& kinds, int degree_forward) {
  KindOptions options;
  for (const LayerKind kind : kAllLayerKinds) {
    if (!kinds[kind]) continue;
    if (is_dense(kind))
      options[kind].add({}, kinds[kind]->backward_paths({}));
    else
      options[kind] = backward_options(query, *kinds[kind], degree_forward);
  }
  return options;
}

// Returns the seconds of a decision without the model's ends, step and gathers. `whole_s`: the seconds with these.
double seconds_of_layers(const ModelQuery& query, double whole_s, const ModelDecision& decision) {
  ModelShape layers = query.model;
  if (layers.vocabulary == 0 && !layers.step.planned && layers.shape.parallel.zero == 0) return whole_s;
  layers.vocabulary = 0;
  layers.step = {};
  layers.shape.parallel.zero = 0;
  return ModelReplay(query.schedule(), query.pricer(), layers).seconds(decision);
}

void split_gradients(const ModelQuery& query, const Decision& layer, ModelResult& result) {
  const LayerPricer& pricer = query.pricer();
  const Schedule& schedule = query.schedule();
  const KindOptions tried = kind_options(query, query.kinds, result.decision.degree_forward);
  const BackwardOptions& moe = tried[query.kinds[LayerKind::moe] ? LayerKind::moe : LayerKind::whole_moe];
  const auto alone = std::ranges::min_element(moe.paths, {}, &SplitPaths::neither) - moe.paths.begin();
  result.decision.degree_backward = moe.options[alone].degree;
  result.decision.order_backward = moe.options[alone].order;
  const auto best_for = [&](LayerKind kind, LayerSlices slices) { return tried[kind].best_for(slices, pricer); };
  const PartitionLayers layers = partition_layers(schedule, query.kinds, tried);
  std::vector<PartitionProblem> problems;  // one per stage if stages differ, else a single one
  for (int stage = 0; stage < (stages_decide_separately(query.model) ? query.model.shape.parallel.pp : 1); ++stage)
    problems.push_back(stage_problem(query, layers, stage));
  result.partition = solved(query.strategy, problems);
  result.decision = decided(query.model, result.partition, best_for, result.decision);
  if (!query.strategy.compares) return;
  ModelReplay replay(schedule, pricer, query.model);
  double least = replay.seconds(result.decision);
  const bool in_moe = schedule.gradients == GradientPolicy::adaptive;
  for (const PartitionStrategy& other : partition_strategies()) {
    if (other.compares || (other.fills_moe && !in_moe)) continue;
    const Partition partition = solved(other, problems);
    const ModelDecision decision = decided(query.model, partition, best_for, result.decision);
    if (const double seconds = replay.seconds(decision); is_better(seconds, least)) {
      least = seconds;
      result.decision = decision;
      result.partition = partition;
    }
  }
  // The problem's sum of seconds is exact if no price curve bends and no task overlaps with the next layer.
  if (problems.size() > 1) return;
  int64_t rest = problems.front().total_bytes();
  for (const LayerSlices& slices : result.partition.layers) rest -= slices.moe_bytes + slices.dense_bytes;
  const double behind = pricer.slice_seconds(rest + query.model.embedding_gradient_bytes) - pricer.slice_seconds(rest);
  const int forwards = forwards_of(pricer.outline());
  double sum = behind + result.partition.seconds + pricer.profile().task_overhead_s;
  EnumArray<LayerKind, double, kLayerKinds> forward_s{};
  for (const LayerKind kind : kAllLayerKinds)
    if (query.kinds[kind])
      forward_s[kind] = query.kinds[kind]->seconds(is_dense(kind) ? Decision() : layer, Phases::forward);
  for (const int number : layers_of_stage(query.model.split(), 0))
    sum += forwards * forward_s[query.model.kind(number)];
  const auto runs_on = [&] {
    return query.model.micro_batches == 1 && query.model.shape.parallel.pp == 1 &&
           is_better(seconds_of_layers(query, least, result.decision), sum);
  };
  if (!pricer.profile().contention.none() || !pricer.gradient_breakpoints().empty() || runs_on())
    improve_by_replay(query, replay, layer, result);
}

}  // namespace moe::search
