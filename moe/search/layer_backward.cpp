// One layer's backward by the gradients that are sent in it: its longest paths, its best split, any slices.
#include <limits>

#include "moe/search/contended_bound.h"
#include "moe/search/degrees.h"
#include "moe/search/partition.h"

namespace moe {
namespace {

constexpr double kNever = std::numeric_limits<double>::max();

}  // namespace

// A slice that outweighs everything else lies on the longest path: what is left is that path without it. Where even the
// path without slices is no shorter than `to_beat`, the others are left at 0. `seconds_` holds the other classes'
// prices.
SplitPaths LayerSearch::split_paths(const LayerPricer& pricer, const CompiledStructure& c, double to_beat) {
  const auto with = [&](double first_s, double second_s) {
    for (size_t i = 0; i < seconds_.size(); ++i) {
      const int slice = c.structure->classes[i].slice;
      if (slice >= 0) seconds_[i] = slice == 0 ? first_s : second_s;
    }
    return makespan(c, pricer);
  };
  const double neither = with(0, 0), heavy = 2 * neither + 1e-9;
  if (!better(neither, to_beat)) return {neither};
  return {neither, with(heavy, 0) - heavy, with(0, heavy) - heavy, with(heavy, heavy) - 2 * heavy};
}

// A schedule that splits between the dense part and the end has its first place beside the dense part.
SplitPaths LayerSearch::backward_paths(const Schedule& schedule, const LayerPricer& pricer,
                                       const BackwardOption& option) {
  const bool apart = schedule.degrees == DegreePolicy::apart;
  Decision decision =
      with_split(schedule, apart ? 1 : option.degree, option.degree, bytes_of(pricer.shape().layer.dtype));
  decision.order_backward = option.order;
  const CompiledStructure& c = compiled(schedule, pricer, decision, Phases::backward);
  pricer.price(*c.structure, slices_of(schedule, pricer.shape(), decision), seconds_);
  const SplitPaths paths = split_paths(pricer, c, kNever);
  if (schedule.gradients == GradientPolicy::adaptive) return paths;
  return {paths.neither, paths.neither, paths.first, paths.first};  // nothing goes into the MoE part
}

double LayerSearch::backward_with(const Schedule& schedule, const LayerPricer& pricer, const BackwardOption& option,
                                  LayerSlices slices) {
  Decision decision{option.degree, option.degree};
  decision.order_backward = option.order;
  const GradientPlacement placement{{.in_moe = slices.moe_bytes > 0, .beside_dense = slices.dense_bytes > 0}, {}, {}};
  const CompiledStructure& c =
      compiled(structure_key(schedule, pricer.groups(), decision, placement, Phases::backward));
  std::vector<GradientSlice> sent;
  for (const int64_t bytes : {slices.moe_bytes, slices.dense_bytes})
    if (bytes > 0) sent.push_back({0, 0, bytes});
  pricer.price(*c.structure, sent, seconds_);
  return makespan(c, pricer);
}

PricedPass LayerSearch::pass(const Schedule& schedule, const LayerPricer& pricer, int degree, Phase phase) {
  const Phases phases = phase == Phase::forward ? Phases::forward : Phases::backward;
  const CompiledStructure& c = compiled(structure_key(schedule, pricer.groups(), {degree, degree}, {}, phases));
  PricedPass pass{c.structure, {}, 0};
  pricer.price(*c.structure, {}, pass.seconds);
  pass.makespan_s = c.makespan(pass.seconds, pricer.profile().contention, ends_);
  return pass;
}

// The least over splits of a backward with everything else decided; any of them where none beats `to_beat`.
LayerSearch::Candidate LayerSearch::best_split_of(const Schedule& schedule, const LayerPricer& pricer,
                                                  Decision decision, double to_beat) {
  int64_t& first =
      schedule.gradients == GradientPolicy::adaptive ? decision.gar_in_moe_bytes : decision.gar_beside_dense_bytes;
  const int64_t all = pricer.gradient_bytes(), element = bytes_of(pricer.shape().layer.dtype);
  std::vector<int64_t> candidates{0};
  first = element;
  const CompiledStructure& c = compiled(schedule, pricer, decision, Phases::backward);
  pricer.price(*c.structure, slices_of(schedule, pricer.shape(), decision), seconds_);
  const Contention& contention = pricer.profile().contention;
  if (!contention.none()) {
    const auto ruled_out = [&] {
      if (!better(least_free_split(c.replay, *c.structure, pricer, seconds_), to_beat)) return true;
      if (to_beat == kNever || schedule.flow != Flow::sharded) return false;
      const PricedPass alone = pass(schedule, pricer, decision.degree_backward, Phase::backward);
      return !better(least_pass_seconds(pricer, alone, least_gradient_seconds(pricer, all)), to_beat);
    };
    if (!ruled_out()) candidates = {0, all, best_contended_split(c.under(contention), *c.structure, pricer, seconds_)};
  } else {
    const SplitPaths paths = split_paths(pricer, c, to_beat);
    if (better(paths.neither, to_beat)) candidates = {0, all, best_split(paths, pricer)};
  }
  Candidate best{{}, kNever};
  for (const int64_t bytes : candidates) {
    first = bytes;
    const double seconds = replay(schedule, pricer, decision, Phases::backward);
    if (better(seconds, best.seconds)) best = {decision, seconds};
  }
  return best;
}

}  // namespace moe
