#include "moe/search/degrees.h"

#include <algorithm>
#include <limits>

namespace moe {
namespace {

// Decisions must not hang on the last bit of a sum: a later candidate wins by more than this, or not at all.
constexpr double kTie = 1e-12;

bool better(double candidate, double best) { return candidate < best * (1 - kTie); }

std::vector<int> degrees(int fixed, const LayerPricer& pricer) {
  if (fixed > 0) return {fixed};
  std::vector<int> all(static_cast<size_t>(std::min<int64_t>(kMaxDegree, pricer.rows())));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i) + 1;
  return all;
}

DegreeChoice checked(const Schedule& schedule, DegreeChoice choice) {
  require<BadInput>(choice.forward >= 0 && choice.backward >= 0, "degree: found {} and {}, expected >= 0 (0: tuned)",
                    choice.forward, choice.backward);
  if (schedule.degrees == DegreePolicy::one) {
    require<BadInput>(choice.forward <= 1 && choice.backward <= 1, "schedule {} has degree 1 only, found {} and {}",
                      schedule.name, choice.forward, choice.backward);
    return {1, 1};
  }
  if (schedule.degrees == DegreePolicy::shared) {
    if (choice.forward == 0) choice.forward = choice.backward;
    if (choice.backward == 0) choice.backward = choice.forward;
    require<BadInput>(choice.forward == choice.backward, "schedule {} has one degree for both phases, found {} and {}",
                      schedule.name, choice.forward, choice.backward);
  }
  return choice;
}

bool in_moe_part(TaskKind kind) { return kind >= TaskKind::dispatch && kind <= TaskKind::combine; }

}  // namespace

const CompiledStructure& LayerSearch::compiled(const Schedule& schedule, const LayerPricer& pricer,
                                               const Decision& decision, Phases phases) {
  const GradientSlots slots = phases == Phases::forward
                                  ? GradientSlots{}
                                  : slots_of(schedule, pricer.groups(), decision, pricer.gradient_bytes());
  return cache_.get(structure_key(schedule, pricer.groups(), decision, slots, phases));
}

double LayerSearch::replay(const Schedule& schedule, const LayerPricer& pricer, const Decision& decision,
                           Phases phases) {
  const CompiledStructure& c = compiled(schedule, pricer, decision, phases);
  pricer.price(*c.structure, slices_of(schedule, decision, pricer.gradient_bytes()), seconds_);
  return c.replay.makespan(seconds_, ends_);
}

double LayerSearch::moe_seconds(const Schedule& schedule, const LayerPricer& pricer, const Decision& decision,
                                Phases phases) {
  const CompiledStructure& c = compiled(schedule, pricer, decision, phases);
  pricer.price(*c.structure, slices_of(schedule, decision, pricer.gradient_bytes()), seconds_);
  c.replay.makespan(seconds_, ends_);
  double begin = std::numeric_limits<double>::infinity(), end = 0;
  for (const Task& task : c.structure->tasks)
    if (in_moe_part(task.kind)) {
      const double task_end = ends_[static_cast<size_t>(task.id)];
      begin = std::min(begin, task_end - seconds_[static_cast<size_t>(task.work_class)]);
      end = std::max(end, task_end);
    }
  return end - begin;
}

// A slice that outweighs everything else lies on the longest path: what is left is that path without it. Where even the
// path without slices is no shorter than `to_beat`, the others are left at 0.
SplitPaths LayerSearch::split_paths(const Schedule& schedule, const LayerPricer& pricer, int degree, double to_beat) {
  const Decision both = with_split(schedule, schedule.degrees == DegreePolicy::shared ? degree : 1, degree,
                                   bytes_of(pricer.shape().layer.dtype));
  const CompiledStructure& c = compiled(schedule, pricer, both, Phases::backward);
  pricer.price(*c.structure, slices_of(schedule, both, pricer.gradient_bytes()), seconds_);
  const auto with = [&](double first_s, double second_s) {
    for (size_t i = 0; i < seconds_.size(); ++i) {
      const int slice = c.structure->classes[i].slice;
      if (slice >= 0) seconds_[i] = slice == 0 ? first_s : second_s;
    }
    return c.replay.makespan(seconds_, ends_);
  };
  const double neither = with(0, 0), heavy = 2 * neither + 1e-9;
  if (!better(neither, to_beat)) return {neither};
  return {neither, with(heavy, 0) - heavy, with(0, heavy) - heavy, with(heavy, heavy) - 2 * heavy};
}

// The least of its splits; any of them where none beats `to_beat`.
LayerSearch::Candidate LayerSearch::best_backward(const Schedule& schedule, const LayerPricer& pricer, int degree,
                                                  double to_beat) {
  std::vector<int64_t> candidates{0};
  const int64_t all = pricer.gradient_bytes();
  if (schedule.gradients != GradientPolicy::after &&
      pricer.groups()[static_cast<size_t>(GroupKind::dp)].network != Network::none && all > 0) {
    const SplitPaths paths = split_paths(schedule, pricer, degree, to_beat);
    if (better(paths.neither, to_beat)) candidates = {0, all, best_split(paths, pricer)};
  }
  Candidate best{{}, std::numeric_limits<double>::max()};
  for (const int64_t bytes : candidates) {
    const Decision decision = with_split(schedule, 1, degree, bytes);
    const double seconds = replay(schedule, pricer, decision, Phases::backward);
    if (better(seconds, best.seconds)) best = {decision, seconds};
  }
  return best;
}

LayerResult LayerSearch::tune(const Schedule& schedule, const LayerPricer& pricer, DegreeChoice choice) {
  choice = checked(schedule, choice);
  Candidate best{{}, std::numeric_limits<double>::max()};
  const auto backward_with = [&](int degree_forward, double forward, int degree_backward) {
    Candidate c = best_backward(schedule, pricer, degree_backward, best.seconds - forward);
    c.decision.degree_forward = degree_forward;
    c.seconds += forward;
    if (better(c.seconds, best.seconds)) best = c;
  };
  if (schedule.degrees == DegreePolicy::apart) {
    Candidate forward{{}, std::numeric_limits<double>::max()};
    for (const int r : degrees(choice.forward, pricer)) {
      const double seconds = replay(schedule, pricer, {r, 1, 0}, Phases::forward);
      if (better(seconds, forward.seconds)) forward = {{r, 1, 0}, seconds};
    }
    for (const int r : degrees(choice.backward, pricer))
      backward_with(forward.decision.degree_forward, forward.seconds, r);
  } else {
    for (const int r : degrees(choice.forward, pricer))
      backward_with(r, replay(schedule, pricer, {r, r, 0}, Phases::forward), r);
  }
  return evaluate(schedule, pricer, best.decision);
}

LayerResult LayerSearch::evaluate(const Schedule& schedule, const LayerPricer& pricer, const Decision& decision) {
  check_decision(schedule, decision);
  LayerResult result;
  result.schedule = schedule.name;
  result.decision = decision;
  result.forward_s = replay(schedule, pricer, decision, Phases::forward);
  result.backward_s = replay(schedule, pricer, decision, Phases::backward);
  result.moe_forward_s = moe_seconds(schedule, pricer, decision, Phases::forward);
  result.moe_backward_s = moe_seconds(schedule, pricer, decision, Phases::backward);
  result.bound = degree_free_bound(schedule, pricer);
  return result;
}

}  // namespace moe
