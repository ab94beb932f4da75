#include "moe/search/layer_replay.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "moe/search/partition.h"

namespace moe::search {

constexpr int64_t kMaxTasks = 1'000'000;  // limit for the cached structures' tasks: some 200 MB

std::shared_ptr<const CompiledStructure> ReplayStore::get(const StructureKey& key) {
  if (key.order_forward.empty() && key.order_backward.empty()) {
    if (const auto known = structures.find(key); known != structures.end()) return known->second;
    if (kept_tasks > kMaxTasks) structures.clear(), kept_tasks = 0;
    auto made = std::make_shared<const CompiledStructure>(key);
    kept_tasks += std::ssize(made->structure->tasks);
    return structures.emplace(key, std::move(made)).first->second;
  }
  if (!ordered || ordered_key != key) ordered = std::make_shared<const CompiledStructure>(key);
  ordered_key = key;
  return ordered;
}

std::shared_ptr<const CompiledStructure> LayerReplay::compiled(const Decision& decision, Phases phases) {
  const GradientPlacement placement = phases == Phases::forward
                                          ? GradientPlacement{}
                                          : placement_of(schedule, pricer.groups(), pricer.shape(), decision);
  return store.get(structure_key(schedule, pricer.outline(), decision, placement, phases));
}

double LayerReplay::makespan(const CompiledStructure& c) {
  return c.makespan(store.seconds, pricer.profile().contention, store.ends);
}

double LayerReplay::seconds(const Decision& decision, Phases phases) {
  const auto cached = compiled(decision, phases);
  const CompiledStructure& c = *cached;
  std::vector<GradientSlice> slices;
  if (c.structure->slices > 0) slices = slices_of(schedule, pricer.shape(), decision);
  pricer.price(*c.structure, slices, store.seconds);
  return makespan(c);
}

PhaseBound LayerReplay::bound(Phase phase) {
  return {schedule, store.bound_shapes.get(schedule, pricer.outline(), phase), pricer};
}

double LayerReplay::moe_seconds(const Decision& decision, Phases phases) {
  const auto cached = compiled(decision, phases);
  seconds(decision, phases);
  const Phase phase = phases == Phases::forward ? Phase::forward : Phase::backward;
  return moe::moe_seconds(*cached->structure, store.ends, phase);
}

PricedPass LayerReplay::pass(int degree, Phase phase) {
  const auto cached = compiled_pass(degree, phase);
  PricedPass priced = price_pass(*cached);
  priced.makespan_s = cached->makespan(priced.seconds, pricer.profile().contention, store.ends);
  return priced;
}

std::shared_ptr<const CompiledStructure> LayerReplay::compiled_pass(int degree, Phase phase) {
  const Phases phases = phase == Phase::forward ? Phases::forward : Phases::backward;
  return store.get(structure_key(schedule, pricer.outline(), {degree, degree}, {}, phases));
}

PricedPass LayerReplay::price_pass(const CompiledStructure& c) const {
  PricedPass priced{c.structure, {}, 0};
  pricer.price(*c.structure, {}, priced.seconds);
  return priced;
}

LayerResult LayerReplay::result(const Decision& decision) {
  check_decision(schedule, decision);
  LayerResult result;
  result.schedule = schedule.name;
  result.decision = decision;
  result.forward_s = seconds(decision, Phases::forward);
  result.backward_s = seconds(decision, Phases::backward);
  result.forwards = forwards_of(pricer.outline());
  result.memory = layer_memory(pricer.shape(), schedule.flow);
  result.moe_forward_s = moe_seconds(decision, Phases::forward);
  result.moe_backward_s = moe_seconds(decision, Phases::backward);
  const PhaseBound forward = bound(Phase::forward), backward = bound(Phase::backward);
  // A bound without padding holds for all degrees, because padding only adds rows.
  LayerCase unpadded = pricer.shape();
  std::optional<LayerPricer> least;
  if (std::exchange(unpadded.row_multiple, 1) > 1) least.emplace(pricer.profile(), unpadded, pricer.options());
  LayerReplay any(schedule, least ? *least : pricer, store);
  const auto f = any.bound(Phase::forward).degree_free(), b = any.bound(Phase::backward).degree_free();
  result.bound = {f.seconds, b.seconds, f.name, b.name};
  const auto f_at = forward.at(decision.degree_forward), b_at = backward.at(decision.degree_backward);
  result.degree_bound = {f_at.seconds, b_at.seconds, f_at.name, b_at.name};
  return result;
}

bool LayerReplay::splits() const {
  return splits_gradients(schedule) && pricer.has(GroupKind::dp) && pricer.gradient_bytes() > 0;
}

// `store.seconds` must have the prices of the other tasks.
SplitPaths LayerReplay::split_paths(const CompiledStructure& c, double to_beat) {
  return replayed_paths(
      *c.structure, store.seconds, [&] { return makespan(c); }, to_beat);
}

// With policy beside_dense, the first of replayed_paths() is beside the dense part, the second after everything else.
SplitPaths LayerReplay::backward_paths(const BackwardOption& option) {
  if (pricer.outline().dense) {
    const GradientPlacement beside{{.beside_dense = true}, {}, {}};
    const auto cached = store.get(structure_key(schedule, pricer.outline(), {}, beside, Phases::backward));
    pricer.price(*cached->structure, {{0, 0, bytes_of(pricer.shape().layer.dtype)}}, store.seconds);
    const SplitPaths paths = split_paths(*cached, kUnpriced);
    return {paths.neither, paths.neither, paths.first, paths.first};
  }
  const bool apart = schedule.degrees == DegreePolicy::apart;
  Decision decision =
      with_split(schedule, apart ? 1 : option.degree, option.degree, bytes_of(pricer.shape().layer.dtype));
  decision.order_backward = option.order;
  const auto cached = compiled(decision, Phases::backward);
  const CompiledStructure& c = *cached;
  pricer.price(*c.structure, slices_of(schedule, pricer.shape(), decision), store.seconds);
  const SplitPaths paths = split_paths(c, kUnpriced);
  if (schedule.gradients == GradientPolicy::adaptive) return paths;
  return {paths.neither, paths.neither, paths.first, paths.first};  // no gradients in the MoE part
}

double LayerReplay::backward_with(const BackwardOption& option, LayerSlices slices) {
  Decision decision{option.degree, option.degree};
  decision.order_backward = option.order;
  const GradientPlacement placement{{.in_moe = slices.moe_bytes > 0, .beside_dense = slices.dense_bytes > 0}, {}, {}};
  const auto cached = store.get(structure_key(schedule, pricer.outline(), decision, placement, Phases::backward));
  const CompiledStructure& c = *cached;
  std::vector<GradientSlice> sent;
  for (const int64_t bytes : {slices.moe_bytes, slices.dense_bytes})
    if (bytes > 0) sent.push_back({0, 0, bytes});
  pricer.price(*c.structure, sent, store.seconds);
  return makespan(c);
}

double LayerReplay::min_contended(int degree) {
  if (pricer.profile().contention.none() || schedule.flow != Flow::sharded) return 0;
  const int64_t sent = pricer.has(GroupKind::dp) ? pricer.gradient_bytes() : 0;
  const PricedPass priced = price_pass(*compiled_pass(degree, Phase::backward));
  return min_pass_seconds(pricer, priced, min_gradient_seconds(pricer, sent));
}

Candidate LayerReplay::best_split_of(const Decision& decision, double to_beat) {
  Candidate best{decision, kUnpriced};
  if (to_beat < kUnpriced && !is_better(min_contended(decision.degree_backward), to_beat)) return best;
  for (const SplitPlaces places : split_places(schedule, !pricer.profile().contention.none())) {
    const Candidate found = best_split_between(places, decision, std::min(to_beat, best.seconds));
    if (is_better(found.seconds, best.seconds)) best = found;
  }
  return best;
}

Candidate LayerReplay::best_split_between(SplitPlaces places, Decision decision, double to_beat) {
  const int64_t all = pricer.gradient_bytes(), element = bytes_of(pricer.shape().layer.dtype);
  std::vector<int64_t> candidates{0};
  split_gradients(schedule, places, element, all, decision);
  const auto cached = compiled(decision, Phases::backward);
  const CompiledStructure& c = *cached;
  pricer.price(*c.structure, slices_of(schedule, pricer.shape(), decision), store.seconds);
  const Contention& contention = pricer.profile().contention;
  if (!contention.none()) {
    if (is_better(min_free_split(c.replay, *c.structure, pricer, store.seconds), to_beat))
      candidates = {0, all, best_contended_split(c.contended_replay(contention), *c.structure, pricer, store.seconds)};
  } else {
    const SplitPaths paths = split_paths(c, to_beat);
    if (is_better(paths.neither, to_beat)) candidates = {0, all, best_split(paths, pricer, all)};
  }
  Candidate best{{}, kUnpriced};
  for (const int64_t bytes : candidates) {
    split_gradients(schedule, places, bytes, all, decision);
    const double found = seconds(decision, Phases::backward);
    if (is_better(found, best.seconds)) best = {decision, found};
  }
  return best;
}

}  // namespace moe::search
