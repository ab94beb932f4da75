#include "moe/cost/bounds.h"

#include <algorithm>
#include <array>

namespace moe {
namespace {

bool larger(const PhaseBound::Term& a, const PhaseBound::Term& b) { return a.seconds < b.seconds; }

Structure one_phase(const Schedule& schedule, const Groups& groups, Phase phase, int degree) {
  const Phases phases = phase == Phase::forward ? Phases::forward : Phases::backward;
  Decision decision;
  decision.degree_forward = decision.degree_backward = degree;
  return *build_structure(structure_key(schedule, groups, decision, {}, phases));
}

std::vector<BoundShape::Link> chain_of(const Structure& structure, int degree) {
  std::vector<BoundShape::Link> chain;
  for (const Task& task : structure.tasks) {
    if (!is_chunked(task.kind)) continue;
    const auto same = std::ranges::find(chain, task.kind, &BoundShape::Link::kind);
    if (same == chain.end()) chain.push_back({task.kind, task.lane, task.chunks == degree && degree > 1, task.chunks});
  }
  return chain;
}

double rows_of(const LayerPricer& pricer) {
  return pricer.shape().rounding == Rounding::exact ? capacity_exact(pricer.shape())
                                                    : static_cast<double>(pricer.rows());
}

}  // namespace

BoundShape bound_shape(const Schedule& schedule, const Groups& groups, Phase phase) {
  BoundShape shape;
  shape.phase = phase;
  const Structure one = one_phase(schedule, groups, phase, 1);
  for (const Lane& lane : one.lanes) shape.lanes.push_back(lane.kind);
  shape.one = chain_of(one, 1);
  const bool several = schedule.degrees != DegreePolicy::one;
  shape.several = several ? chain_of(one_phase(schedule, groups, phase, 2), 2) : shape.one;
  for (BoundShape::Link& link : shape.one) {  // what is cut by degree is so in one chunk too
    const auto same = std::ranges::find(shape.several, link.kind, &BoundShape::Link::kind);
    link.by_degree = same != shape.several.end() && same->by_degree;
  }
  const Network network = groups[static_cast<size_t>(GroupKind::dp)].network;
  if (phase == Phase::backward && network != Network::none)  // a lane of their own stands last: all else runs beside it
    for (size_t lane = one.lanes.size(); shape.gradient_lane < 0 && lane-- > 1;)
      if (one.lanes[lane].owns(network)) shape.gradient_lane = static_cast<int>(lane);
  for (const Task& task : one.tasks) {
    if (is_chunked(task.kind)) continue;
    shape.dense.push_back({task.kind, task.lane, false, 1});
  }
  return shape;
}

PhaseBound::PhaseBound(const Schedule& schedule, const BoundShape& shape, const LayerPricer& pricer)
    : schedule_(schedule), shape_(shape), pricer_(pricer) {
  for (const auto& link : shape.dense) dense_ += pricer.dense_seconds(link.kind, shape.phase, schedule.flow);
  if (shape.gradient_lane < 0) return;
  gradients_ = pricer.gradient_seconds(pricer.gradient_bytes());
  gradients_bend_ = !pricer.gradient_bends().empty();
  beside_gradients_ = dense_on(shape.gradient_lane);
}

double PhaseBound::dense_on(int lane) const {
  double seconds = 0;
  for (const auto& link : shape_.dense)
    if (link.lane == lane) seconds += pricer_.dense_seconds(link.kind, shape_.phase, schedule_.flow);
  return seconds;
}

double PhaseBound::busy(int lane) const {
  double seconds = dense_on(lane);
  for (const auto& link : shape_.one)
    if (link.lane == lane) seconds += load(link, 0).all;
  return seconds;
}

PhaseBound::Load PhaseBound::load(const BoundShape::Link& link, int degree) const {
  const double rows = rows_of(pricer_);
  const auto seconds = [&](double part) {
    return pricer_.chunk_seconds(link.kind, shape_.phase, part, schedule_.flow);
  };
  if (link.kind == TaskKind::exchange) return {seconds(rows), seconds(rows) / link.parts};
  if (!link.by_degree) return {link.parts * seconds(rows / link.parts), seconds(rows / link.parts)};
  if (degree == 0) return {seconds(rows), seconds(0)};
  if (pricer_.shape().rounding == Rounding::exact) {
    const double part = seconds(rows / degree);
    return {degree * part, part};
  }
  const int64_t longer = pricer_.rows() % degree, least = pricer_.rows() / degree;
  const double shorter_s = seconds(static_cast<double>(least));
  const double longer_s = longer == 0 ? shorter_s : seconds(static_cast<double>(least + 1));
  return {static_cast<double>(longer) * longer_s + static_cast<double>(degree - longer) * shorter_s,
          std::min(shorter_s, longer_s)};
}

// Links [first, last) of a chain, all of them cut into parts: the busiest lane, before its first task and behind its
// last what one part at least has to pass.
PhaseBound::Term PhaseBound::segment(std::span<const BoundShape::Link> links, std::span<const Load> loads) const {
  double path = 0;
  for (const Load& load : loads) path += load.least;
  Term most{path, name_of(LaneKind::compute)};
  for (size_t lane = 0; lane < shape_.lanes.size(); ++lane) {
    double busy = 0, before = 0, behind = 0;
    bool found = false;
    for (size_t i = 0; i < links.size(); ++i) {
      if (links[i].lane == static_cast<int>(lane)) {
        busy += loads[i].all;
        behind = 0;
        found = true;
      } else {
        (found ? behind : before) += loads[i].least;
      }
    }
    if (found) most = std::max(most, Term{before + busy + behind, name_of(shape_.lanes[lane])}, larger);
  }
  return most;
}

// A task that takes all rows at once stands between those before it and those behind.
PhaseBound::Term PhaseBound::moe_part(std::span<const BoundShape::Link> chain, std::span<const Load> loads) const {
  Term longest{0, name_of(LaneKind::compute)};
  double seconds = 0;
  const auto add = [&](const Term& term) {
    seconds += term.seconds;
    longest = std::max(longest, term, larger);
  };
  size_t first = 0;
  for (size_t i = 0; i <= chain.size(); ++i) {
    const bool whole = i < chain.size() && !chain[i].by_degree && chain[i].parts == 1;
    if (i < chain.size() && !whole) continue;
    if (i > first) add(segment(chain.subspan(first, i - first), loads.subspan(first, i - first)));
    if (whole) add({loads[i].all, name_of(shape_.lanes[static_cast<size_t>(chain[i].lane)])});
    first = i + 1;
  }
  return {seconds, longest.name};
}

PhaseBound::Term PhaseBound::with_gradients(const std::vector<BoundShape::Link>& chain, int degree) const {
  std::array<Load, 8> loads;
  double on_gradient_lane = gradients_ + beside_gradients_;
  for (size_t i = 0; i < chain.size(); ++i) {
    loads[i] = load(chain[i], degree);
    if (chain[i].lane == shape_.gradient_lane) on_gradient_lane += loads[i].all;
  }
  Term most = moe_part(chain, std::span(loads).first(chain.size()));
  most.seconds += dense_;
  if (shape_.gradient_lane < 0) return most;
  if (schedule_.gradients == GradientPolicy::after) return {most.seconds + gradients_, most.name};
  if (degree > 0 && gradients_bend_) return most;  // slices of a measured curve may cost less than the whole
  return std::max(most, Term{on_gradient_lane, "gradients"}, larger);
}

PhaseBound::Term PhaseBound::degree_free() const { return with_gradients(shape_.one, 0); }

PhaseBound::Term PhaseBound::at(int degree) const {
  return with_gradients(degree == 1 ? shape_.one : shape_.several, degree);
}

Bound degree_free_bound(const Schedule& schedule, const LayerPricer& pricer) {
  const BoundShape forward = bound_shape(schedule, pricer.groups(), Phase::forward);
  const BoundShape backward = bound_shape(schedule, pricer.groups(), Phase::backward);
  const auto f = PhaseBound(schedule, forward, pricer).degree_free();
  const auto b = PhaseBound(schedule, backward, pricer).degree_free();
  return {f.seconds, b.seconds, f.name, b.name};
}

}  // namespace moe
