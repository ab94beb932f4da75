// Idea: a lane can't begin before the first chunk has reached it, must run the parts of all chunks, and its last chunk
// must still pass the following links. So head, load and tail of each lane together bound the time of a stretch of
// chunked tasks. A task that takes all rows ends a stretch: it waits for all earlier parts, and all later parts wait
// for it, so the bounds of stretches add up.
// Invariant: no term exceeds the time of a replay. A head or a tail counts the shortest part of each link. Without a
// fixed degree, each start-up time counts once (alpha-beta rows) and each byte with its smallest price (curves).
// Source: machine-based bounds of flow shops (Lageweg, Lenstra and Rinnooy Kan, 1978).
#include "moe/simulator/bounds.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "moe/simulator/contended_work.h"
#include "moe/simulator/slowdown.h"

namespace moe {
namespace {

// A chain has at most one chunked link of each kind.
constexpr size_t kMaxLinks = [] {
  size_t kinds = 0;
  for (int kind = 0; kind < kTaskKinds; ++kind) kinds += is_chunked(static_cast<TaskKind>(kind)) ? 1 : 0;
  return kinds;
}();

constexpr int kComputeLane = 0;

bool larger(const PhaseBound::Term& a, const PhaseBound::Term& b) { return a.seconds < b.seconds; }

Structure one_phase(const Schedule& schedule, const LayerOutline& layer, Phase phase, int degree) {
  const Phases phases = phase == Phase::forward ? Phases::forward : Phases::backward;
  Decision decision;
  decision.degree_forward = decision.degree_backward = degree;
  return *build_structure(structure_key(schedule, layer, decision, {}, phases));
}

std::vector<BoundShape::Link> chain_of(const Structure& structure, int degree) {
  std::vector<BoundShape::Link> chain;
  for (const Task& task : structure.tasks) {
    if (!is_chunked(task.kind) || task.kind == TaskKind::expert_dw) continue;
    const auto same = std::ranges::find(chain, task.kind, &BoundShape::Link::kind);
    if (same == chain.end()) chain.push_back({task.kind, task.lane, task.chunks == degree && degree > 1, task.chunks});
  }
  return chain;
}

}  // namespace

namespace {

// Adds the links of a pass that are not cut by degree: those before and after the chunks, those that overlap with the
// sum over MP, and the ring.
void add_whole_tasks(const Structure& one, const Schedule& schedule, BoundShape& shape) {
  const bool several = schedule.degrees != DegreePolicy::one;
  bool behind = false;
  std::map<int, size_t> in_ring;  // for each task, its index in the ring
  for (const Task& task : one.tasks) {
    std::vector<BoundShape::Link>& whole = behind ? shape.behind : shape.before;
    if (is_ring_attention_task(task.kind)) {
      if (in_ring.empty()) whole.push_back({TaskKind::heads, kComputeLane, false, 1});
      BoundShape::RingTask& own = shape.ring.emplace_back(BoundShape::RingTask{task.kind, task.lane, {}});
      for (const int id : task.after)
        if (const auto before = in_ring.find(id); before != in_ring.end()) own.after.push_back(before->second);
      in_ring.emplace(task.id, in_ring.size());
    } else if (is_chunked(task.kind)) {
      behind = true;
      if (task.kind == TaskKind::expert_dw) shape.weights.push_back({task.kind, task.lane, several, 1});
    } else if (task.kind == TaskKind::attention_dw) {
      shape.beside_sum.push_back({task.kind, task.lane, false, 1});
    } else if (is_shared(task.kind) && !schedule.in_sequence) {
      shape.shared.push_back({task.kind, task.lane, false, 1});
    } else if (task.kind != TaskKind::expert_gradient) {
      whole.push_back({task.kind, task.lane, false, 1});
    }
  }
}

}  // namespace

BoundShape bound_shape(const Schedule& schedule, const LayerOutline& layer, Phase phase) {
  BoundShape shape;
  shape.phase = phase;
  const Structure one = one_phase(schedule, layer, phase, 1);
  for (const Lane& lane : one.lanes) shape.lanes.push_back(lane.kind);
  shape.one = chain_of(one, 1);
  const bool several = schedule.degrees != DegreePolicy::one;
  shape.several = several ? chain_of(one_phase(schedule, layer, phase, 2), 2) : shape.one;
  for (BoundShape::Link& link : shape.one) {  // links cut by degree are marked in the one-chunk chain too
    const auto same = std::ranges::find(shape.several, link.kind, &BoundShape::Link::kind);
    link.by_degree = same != shape.several.end() && same->by_degree;
  }
  const Network network = layer.groups[GroupKind::dp].network;
  if (phase == Phase::backward && network != Network::none)  // the last such lane, because a gradient lane comes last
    for (size_t lane = one.lanes.size(); shape.gradient_lane < 0 && lane-- > 1;)
      if (one.lanes[lane].owns(network)) shape.gradient_lane = static_cast<int>(lane);
  const Network between = layer.groups[GroupKind::pp].network;
  for (size_t lane = 1; shape.transfer_lane < 0 && between != Network::none && lane < one.lanes.size(); ++lane)
    if (one.lanes[lane].owns(between)) shape.transfer_lane = static_cast<int>(lane);
  add_whole_tasks(one, schedule, shape);
  return shape;
}

PassTasks::PassTasks(std::shared_ptr<const Structure> of) : structure_(std::move(of)) {
  const Structure& structure = *structure_;
  for (const Task& task : structure.tasks) {
    rows_.push_back(
        {static_cast<uint32_t>(task.lane), static_cast<uint32_t>(dependencies_.size()), task.after.empty()});
    for (const int id : cross_lane_dependencies(structure, task)) dependencies_.push_back(static_cast<uint32_t>(id));
    if (task.kind != TaskKind::attention_dw) chain_end_ = rows_.size() - 1;
  }
  rows_.push_back({0, static_cast<uint32_t>(dependencies_.size()), false});
}

std::vector<double> PassTasks::seconds(const LayerPricer& pricer) const {
  std::vector<double> seconds;
  pricer.price(*structure_, {}, seconds);
  return seconds;
}

void PassTasks::replay(std::span<const double> seconds, std::vector<double>& ends) const {
  const size_t lanes = this->lanes();
  const double begin_s = ends[lanes];
  ends.resize(lanes + rows_.size());
  const std::span<double> task_ends = std::span(ends).subspan(lanes + 1);
  for (size_t i = 0; i + 1 < rows_.size(); ++i) {
    const Row& row = rows_[i];
    double start = row.begins ? std::max(ends[row.lane], begin_s) : ends[row.lane];
    for (uint32_t d = row.first_dependency; d < rows_[i + 1].first_dependency; ++d)
      start = std::max(start, task_ends[dependencies_[d]]);
    task_ends[i] = ends[row.lane] = start + seconds[i];
  }
  ends[lanes] = task_ends[chain_end_];
  ends.resize(lanes + 1);
}

const PassTasks& BoundShapes::pass(const Schedule& schedule, const LayerOutline& layer, Phase phase, int degree) {
  const Phases phases = phase == Phase::forward ? Phases::forward : Phases::backward;
  const StructureKey key = structure_key(schedule, layer, {degree, degree}, {}, phases);
  const auto known = passes_.find(key);
  return known != passes_.end() ? known->second : passes_.emplace(key, PassTasks(build_structure(key))).first->second;
}

const BoundShape& BoundShapes::get(const Schedule& schedule, const LayerOutline& layer, Phase phase) {
  const auto [it, fresh] = known_.try_emplace({structure_key(schedule, layer, {}, {}, Phases::both), phase});
  if (fresh) it->second = bound_shape(schedule, layer, phase);
  return it->second;
}

PhaseBound::PhaseBound(const Schedule& schedule, const BoundShape& shape, const LayerPricer& pricer)
    : schedule_(schedule), shape_(shape), pricer_(pricer), ring_s_(ring_seconds()) {
  double sum_s = 0;  // seconds of the tasks that attention_dw overlaps with
  for (const auto* part : {&shape.before, &shape.behind})
    for (const auto& link : *part) {
      dense_ += dense(link);
      const bool before = link.kind == TaskKind::attention_dx || link.kind == TaskKind::keys_values;
      sum_s = before ? 0 : sum_s + dense(link);
    }
  for (const auto& half : shape.beside_sum) dense_ += std::max(0.0, dense(half) - sum_s);
  follow_shared();
  if (shape.gradient_lane < 0) return;
  const bool whole = schedule.gradients == GradientPolicy::after;  // sent in one slice
  gradients_ = whole ? pricer.gradient_seconds(pricer.gradient_bytes())
                     : pricer.gradient_seconds_in_parts(pricer.gradient_bytes());
  beside_gradients_ = dense_on(shape.gradient_lane);
}

double PhaseBound::dense(const BoundShape::Link& link) const {
  if (is_ring(link)) return ring_s_;
  return pricer_.dense_seconds(link.kind, shape_.phase, schedule_.flow);
}

// Returns the seconds of the ring in a replay in which all lanes are free at its start.
double PhaseBound::ring_seconds() const {
  std::vector<double> ends, lanes(shape_.lanes.size(), 0);
  for (const BoundShape::RingTask& task : shape_.ring) {
    double start = lanes[task.lane];
    for (const size_t before : task.after) start = std::max(start, ends[before]);
    lanes[task.lane] = start + pricer_.dense_seconds(task.kind, shape_.phase, schedule_.flow);
    ends.push_back(lanes[task.lane]);
  }
  return *std::ranges::max_element(lanes);
}

double PhaseBound::ring_busy(int lane) const {
  double seconds = 0;
  for (const BoundShape::RingTask& task : shape_.ring)
    if (task.lane == lane) seconds += pricer_.dense_seconds(task.kind, shape_.phase, schedule_.flow);
  return seconds;
}

// Returns whether tasks of the link run on the lane.
bool PhaseBound::is_on(const BoundShape::Link& link, int lane) const {
  return is_ring(link) ? std::ranges::count(shape_.ring, lane, &BoundShape::RingTask::lane) > 0 : link.lane == lane;
}

double PhaseBound::busy_on(const BoundShape::Link& link, int lane) const {
  if (is_ring(link)) return ring_busy(lane);
  return link.lane == lane ? dense(link) : 0;
}

void PhaseBound::follow_shared() {
  shared_lead_.assign(shape_.lanes.size(), 0);
  shared_tail_ = shared_lead_;
  bool computed = false;
  for (const BoundShape::Link& link : shape_.shared) {
    const double seconds = dense(link);
    shared_ += seconds;
    computed |= link.kind == TaskKind::shared;
    const bool adds_up = computed && link.kind != TaskKind::shared;
    (adds_up ? shared_tail_ : shared_lead_)[link.lane] = adds_up ? seconds : shared_;
  }
}

double PhaseBound::dense_on(int lane) const {
  double seconds = 0;
  for (const auto* part : {&shape_.before, &shape_.behind, &shape_.shared, &shape_.beside_sum})
    for (const auto& link : *part) seconds += busy_on(link, lane);
  return seconds;
}

double PhaseBound::busy(int lane, BoundedDegrees degrees) const {
  double seconds = dense_on(lane);
  for (const auto* part : {&shape_.one, &shape_.weights})
    for (const auto& link : *part)
      if (link.lane == lane) seconds += load(link, degrees).all;
  return seconds;
}

// Tasks beside the chain start at the MoE part's start, or end at its end.
double PhaseBound::outside(int lane, BoundedDegrees degrees) const {
  std::vector<BoundShape::Link> chain;
  for (const auto* part : {&shape_.before, &moe_chain(degrees), &shape_.behind})
    chain.insert(chain.end(), part->begin(), part->end());
  const bool forward = shape_.phase == Phase::forward;
  if (!forward) std::ranges::reverse(chain);
  // Number of links before (after) the MoE part.
  const size_t outermost = (forward ? shape_.before : shape_.behind).size();
  const auto is_here = [&](const BoundShape::Link& link) { return is_on(link, lane); };
  const bool beside = std::ranges::any_of(shape_.shared, is_here) || std::ranges::any_of(shape_.weights, is_here) ||
                      std::ranges::any_of(shape_.beside_sum, is_here);
  double seconds = 0;
  for (size_t i = 0; i < chain.size(); ++i) {
    if (is_here(chain[i]) || (beside && i == outermost)) return seconds;
    seconds += is_chunked(chain[i].kind) ? load(chain[i], degrees).min : dense(chain[i]);
  }
  return beside ? seconds : std::numeric_limits<double>::infinity();
}

PhaseBound::Load PhaseBound::load(const BoundShape::Link& link, BoundedDegrees degrees) const {
  const double rows = pricer_.all_rows();
  const auto seconds = [&](double part) {
    return pricer_.chunk_seconds(link.kind, shape_.phase, part, schedule_.flow);
  };
  if (link.kind == TaskKind::exchange) return {seconds(rows), seconds(rows) / link.parts};
  if (!link.by_degree) return {link.parts * seconds(rows / link.parts), seconds(rows / link.parts)};
  const int degree = degrees.exact;
  const bool exact = pricer_.shape().rounding == Rounding::exact;
  if (degree == 0) {
    const double largest = exact ? rows / degrees.min : std::ceil(rows / degrees.min);
    const MinSeconds least = pricer_.seconds_in_parts(link.kind, shape_.phase, rows, largest, schedule_.flow);
    return {least.all, least.one};
  }
  if (exact) {
    const double part = seconds(rows / degree);
    return {degree * part, part};
  }
  const int64_t longer = pricer_.rows() % degree, least = pricer_.rows() / degree;
  const double shorter_s = seconds(static_cast<double>(least));
  const double longer_s = longer == 0 ? shorter_s : seconds(static_cast<double>(least + 1));
  return {static_cast<double>(longer) * longer_s + static_cast<double>(degree - longer) * shorter_s,
          std::min(shorter_s, longer_s)};
}

PhaseBound::LaneLoad PhaseBound::lane_load(std::span<const BoundShape::Link> links, std::span<const Load> loads,
                                           size_t lane) {
  LaneLoad on;
  bool found = false;
  for (size_t i = 0; i < links.size(); ++i) {
    if (links[i].lane == static_cast<int>(lane)) {
      on.busy += loads[i].all;
      on.behind = 0;
      found = true;
    } else {
      (found ? on.behind : on.before) += loads[i].min;
    }
  }
  return on;
}

// Bounds a stretch of links that are all cut into parts. A lane runs its parts one after another. Before its first
// part, that chunk has passed all earlier links, and after its last part, that chunk must still pass all later links;
// each of these takes at least the seconds of the link's shortest part. So the three add up for any lane.
PhaseBound::Term PhaseBound::segment(std::span<const BoundShape::Link> links, std::span<const Load> loads) const {
  double path = 0;
  for (const Load& load : loads) path += load.min;
  Term most{path, name_of(LaneKind::compute)};
  for (size_t lane = 0; lane < shape_.lanes.size(); ++lane) {
    const LaneLoad on = lane_load(links, loads, lane);
    if (on.busy > 0) most = std::max(most, Term{on.before + on.busy + on.behind, name_of(shape_.lanes[lane])}, larger);
  }
  return most;
}

// The shared expert is a second chain, which begins and ends together with the MoE part's chain. Its gather of tokens
// and its computation come first on their lanes, and the sum of its parts comes last.
PhaseBound::Term PhaseBound::beside_shared(const Term& alone, std::span<const BoundShape::Link> chain,
                                           std::span<const Load> loads) const {
  Term most = std::max(alone, Term{shared_, name_of(LaneKind::compute)}, larger);
  for (size_t lane = 0; lane < shape_.lanes.size() && !shape_.shared.empty(); ++lane) {
    const LaneLoad on = lane_load(chain, loads, lane);
    const double seconds = std::max(on.before, shared_lead_[lane]) + on.busy + std::max(on.behind, shared_tail_[lane]);
    if (on.busy > 0) most = std::max(most, Term{seconds, name_of(shape_.lanes[lane])}, larger);
  }
  return most;
}

// Tasks beside the chain are the shared expert and the half of the experts' backward for which no exchange waits. A
// lane that has completed that half has also waited for a first chunk and run the other half.
PhaseBound::Term PhaseBound::with_all_beside(const Term& alone, std::span<const BoundShape::Link> chain,
                                             std::span<const Load> loads, BoundedDegrees degrees) const {
  Term most = beside_shared(alone, chain, loads);
  for (const BoundShape::Link& link : shape_.weights) {
    const auto lane = static_cast<size_t>(link.lane);
    const LaneLoad on = lane_load(chain, loads, lane);
    const double seconds = std::max(on.before, shared_lead_[lane]) + on.busy + load(link, degrees).all;
    most = std::max(most, Term{seconds, name_of(shape_.lanes[lane])}, larger);
  }
  return most;
}

// Sums the bounds of stretches: a task that takes all rows waits for all earlier parts, and all later ones wait for it.
PhaseBound::Term PhaseBound::moe_part(std::span<const BoundShape::Link> chain, std::span<const Load> loads) const {
  Term longest{0, name_of(LaneKind::compute)};
  double seconds = 0;
  const auto add = [&](const Term& term) {
    seconds += term.seconds;
    longest = std::max(longest, term, larger);
  };
  size_t first = 0;
  for (size_t i = 0; i <= chain.size(); ++i) {
    const bool whole = i < chain.size() && chain[i].takes_all_rows();
    if (i < chain.size() && !whole) continue;
    if (i > first) add(segment(chain.subspan(first, i - first), loads.subspan(first, i - first)));
    if (whole) add({loads[i].all, name_of(shape_.lanes[chain[i].lane])});
    first = i + 1;
  }
  return {seconds, longest.name};
}

// The dense part and the MoE part form one chain, so their bounds add up. With policy `after`, gradients are sent in
// one slice after the dense part. With all other policies, the gradient lane must run them and its other tasks, in
// whatever slices.
PhaseBound::Term PhaseBound::bound(BoundedDegrees degrees) const {
  const auto& chain = moe_chain(degrees);
  std::array<Load, kMaxLinks> loads;
  double on_gradient_lane = gradients_ + beside_gradients_;
  for (size_t i = 0; i < chain.size(); ++i) {
    loads[i] = load(chain[i], degrees);
    if (chain[i].lane == shape_.gradient_lane) on_gradient_lane += loads[i].all;
  }
  const std::span<const Load> of_chain = std::span(loads).first(chain.size());
  Term most = with_all_beside(moe_part(chain, of_chain), chain, of_chain, degrees);
  most.seconds += dense_;
  if (!pricer_.profile().contention.none())
    most = std::max(most, Term{contended(chain, of_chain, degrees), "contention"}, larger);
  if (shape_.gradient_lane < 0 || !degrees.gradients) return most;
  if (schedule_.gradients == GradientPolicy::after) return {most.seconds + gradients_, most.name};
  return std::max(most, Term{on_gradient_lane, "gradients"}, larger);
}

// Bounds the seconds under contention. Links of the dense part and stretches of the MoE part follow each other;
// gradients (unless sent after everything) and halves of backwards for which no task waits may overlap with any of
// them. A shared expert is ignored.
double PhaseBound::contended(std::span<const BoundShape::Link> chain, std::span<const Load> loads,
                             BoundedDegrees degrees) const {
  const GroupNetworks networks = networks_of(pricer_.groups());
  const auto work = [&](const BoundShape::Link& link, double seconds) {
    const LaneKind lane = shape_.lanes[link.lane];
    return LaneWork{link.lane, resource_of(group_of(schedule_.flow, link.kind), lane, networks), seconds};
  };
  std::vector<LaneWork> dense_works, ring_works, beside;
  for (const BoundShape::RingTask& task : shape_.ring)
    add_work(ring_works,
             work({task.kind, task.lane, false, 1}, pricer_.dense_seconds(task.kind, shape_.phase, schedule_.flow)));
  for (const auto* part : {&shape_.before, &shape_.behind})
    for (const auto& link : *part)
      if (!is_ring(link)) add_work(dense_works, work(link, dense(link)));
  std::vector<std::vector<LaneWork>> stretches;
  for (const LaneWork& each : dense_works) stretches.push_back({each});
  if (!ring_works.empty()) stretches.push_back(ring_works);
  bool open = false;  // the last stretch has links cut into parts
  for (size_t i = 0; i < chain.size(); ++i) {
    const bool whole = chain[i].takes_all_rows();
    if (whole || !open) stretches.emplace_back();
    add_work(stretches.back(), work(chain[i], loads[i].all));
    open = !whole;
  }
  for (const auto& link : shape_.weights) add_work(beside, work(link, load(link, degrees).all));
  for (const auto& link : shape_.beside_sum) add_work(beside, work(link, dense(link)));
  if (shape_.gradient_lane >= 0 && degrees.gradients && schedule_.gradients != GradientPolicy::after)
    add_work(beside, work({TaskKind::gradient, shape_.gradient_lane, false, 1}, gradients_));
  return min_contended_seconds(pricer_.profile().contention, stretches, beside);
}

// All tasks from the first link of lane a on begin no earlier than the first task of lane a: a lane's tasks follow its
// first one, and a chunk's tasks on later links follow its task on this link. Likewise, all tasks up to the last link
// of lane b end no later than lane b. The links between form a chain, whose bound is the crossing from a to b. Tasks
// beside the MoE part lie between the dense parts before and after it on every lane.
Crossings PhaseBound::crossings(BoundedDegrees degrees) const {
  const std::vector<BoundShape::Link>& moe_links = moe_chain(degrees);
  std::vector<BoundShape::Link> chain = shape_.before;
  chain.insert(chain.end(), moe_links.begin(), moe_links.end());
  chain.insert(chain.end(), shape_.behind.begin(), shape_.behind.end());
  std::vector<Load> loads;
  for (const auto& link : chain) {
    const bool whole = !is_chunked(link.kind);
    loads.push_back(whole ? Load{dense(link), dense(link)} : load(link, degrees));
  }
  const size_t lanes = shape_.lanes.size();
  std::vector<size_t> first(lanes + 1, chain.size()), last(lanes + 1, 0);  // for each lane, its links [first, last)
  first[lanes] = 0;
  last[lanes] = chain.size();
  for (size_t i = chain.size(); i-- > 0;)
    for (size_t lane = 0; lane < lanes; ++lane)
      if (is_on(chain[i], static_cast<int>(lane))) first[lane] = i;
  for (size_t i = 0; i < chain.size(); ++i)
    for (size_t lane = 0; lane < lanes; ++lane)
      if (is_on(chain[i], static_cast<int>(lane))) last[lane] = i + 1;
  Crossings crossings(lanes + 1, std::vector<double>(lanes + 1, -std::numeric_limits<double>::infinity()));
  const size_t begin = shape_.before.size(), count = moe_links.size();
  const std::span<const BoundShape::Link> of_moe = std::span(chain).subspan(begin, count);
  const std::span<const Load> moe_loads = std::span(loads).subspan(begin, count);
  const Term alone = moe_part(of_moe, moe_loads);
  const double longer_s = with_all_beside(alone, of_moe, moe_loads, degrees).seconds - alone.seconds;
  std::vector<double> last_s(lanes + 1, 0);  // for each lane, seconds after the whole chain
  for (const auto& half : shape_.beside_sum) last_s[half.lane] += dense(half);
  // The ring's heads may begin before the lane of its sends is free, and end after the last send, so it counts less.
  const auto shorter = [&](size_t link, size_t lane) {
    if (lane == lanes || !is_ring(chain[link])) return 0.0;
    return ring_s_ - ring_busy(static_cast<int>(lane));
  };
  for (size_t a = 0; a <= lanes; ++a)
    for (size_t b = 0; b <= lanes; ++b)
      if (first[a] < last[b]) {
        const size_t links = last[b] - first[a];
        crossings[a][b] =
            moe_part(std::span(chain).subspan(first[a], links), std::span(loads).subspan(first[a], links)).seconds +
            (first[a] < begin && last[b] > begin + count ? longer_s : 0) + last_s[b] -
            std::max(shorter(first[a], a), shorter(last[b] - 1, b));
      }
  return crossings;
}

// Lanes are FIFO queues and tasks wait only for ends of tasks, so times are maxima of sums. The end of a pass is the
// maximum of its ends in replays that each wait for only one of the lanes or the chain.
Crossings crossings_of(const PassTasks& pass, std::span<const double> seconds) {
  const size_t lanes = pass.lanes();
  Crossings crossings;
  for (size_t from = 0; from <= lanes; ++from) {
    std::vector<double>& ends = crossings.emplace_back(lanes + 1, -std::numeric_limits<double>::infinity());
    ends[from] = 0;
    pass.replay(seconds, ends);
  }
  return crossings;
}

PhaseBound::Term PhaseBound::degree_free() const { return bound({}); }
PhaseBound::Term PhaseBound::at(int degree) const { return bound({.exact = degree}); }
double PhaseBound::from(int degree) const { return bound({.min = degree}).seconds; }
double PhaseBound::pass_from(int degree) const { return bound({.min = degree, .gradients = false}).seconds; }

Bound min_phases(const Bound& one, const Bound& other) {
  const Bound& forward = other.forward_s < one.forward_s ? other : one;
  const Bound& backward = other.backward_s < one.backward_s ? other : one;
  return {forward.forward_s, backward.backward_s, forward.forward_term, backward.backward_term};
}

Bound degree_free_bound(const Schedule& schedule, const LayerPricer& pricer) {
  // Without padding the bound holds for all degrees.
  if (LayerCase unpadded = pricer.shape(); std::exchange(unpadded.row_multiple, 1) > 1)
    return degree_free_bound(schedule, LayerPricer(pricer.profile(), unpadded, pricer.options()));
  if (!schedule.variants.empty()) {
    Bound least = degree_free_bound(*schedule.variants.front(), pricer);
    for (const Schedule* variant : schedule.variants.subspan(1))
      least = min_phases(least, degree_free_bound(*variant, pricer));
    return least;
  }
  const BoundShape forward = bound_shape(schedule, pricer.outline(), Phase::forward);
  const BoundShape backward = bound_shape(schedule, pricer.outline(), Phase::backward);
  const auto f = PhaseBound(schedule, forward, pricer).degree_free();
  const auto b = PhaseBound(schedule, backward, pricer).degree_free();
  const int again = forwards_of(pricer.outline()) - 1;
  return {f.seconds, again * f.seconds + b.seconds, f.name, b.name};
}

}  // namespace moe
