#include "moe/search/detail/lane_order.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

namespace moe::search {
namespace {

constexpr size_t kStateLimit = 20000;  // limit for the partial orders of one search; degree 12 stays below it
constexpr double kTie = 1e-12;

double sum(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

// Returns a lower bound over all orders: the load of the busiest lane, plus the least time before and after it.
double order_lower_bound(const ChunkTimes& t) {
  const double to_intra = t.dispatch.front(), from_intra = t.combine.back();
  return std::max({sum(t.dispatch) + t.gradients + sum(t.combine),
                   to_intra + sum(t.allgather) + sum(t.reducescatter) + from_intra,
                   to_intra + t.allgather.front() + sum(t.expert) + t.reducescatter.back() + from_intra});
}

// The state after a partial order of g AllGathers and s ReduceScatters: the ends of the intra lane, of the last combine
// and of each expert whose ReduceScatter is still to come. The last of these experts is the last on the compute lane.
struct State {
  double intra = 0, combined = 0;
  std::vector<double> experts;
  LaneOrder order;
};

bool no_later(const State& a, const State& b) {
  if (a.intra > b.intra || a.combined > b.combined) return false;
  for (size_t i = 0; i < a.experts.size(); ++i)
    if (a.experts[i] > b.experts[i]) return false;
  return true;
}

class Replayed {
 public:
  explicit Replayed(const ChunkTimes& times) : times_(times), arrived_(times.degree()) {
    double end = 0;
    for (size_t c = 0; c < times.degree(); ++c) arrived_[c] = end += times.dispatch[c];
    combines_from_ = end + times.gradients;
  }

  State begin() const { return {times_.shared_allgather, combines_from_, {}, {}}; }

  double end(const State& state) const {
    return std::max(state.combined, std::max(state.intra, times_.shared_end()) + times_.shared_reducescatter);
  }

  // Adds an AllGather. `compute`: the end of the last expert, used if state.experts is empty.
  void gather(State& state, size_t g, double compute) const {
    state.intra = std::max(state.intra, arrived_[g]) + times_.allgather[g];
    const double before = state.experts.empty() ? compute : state.experts.back();
    state.experts.push_back(std::max(before, state.intra) + times_.expert[g]);
    state.order += 'G';
  }

  void scatter(State& state, size_t s) const {
    state.intra = std::max(state.intra, state.experts.front()) + times_.reducescatter[s];
    state.experts.erase(state.experts.begin());
    state.combined = std::max(state.combined, state.intra) + times_.combine[s];
    state.order += 'S';
  }

 private:
  const ChunkTimes& times_;
  std::vector<double> arrived_;
  double combines_from_;
};

LaneOrder gathers_first(size_t degree) { return LaneOrder(degree, 'G') + LaneOrder(degree, 'S'); }

// Returns the order of `lead` AllGathers, then ReduceScatters and AllGathers in turn.
LaneOrder lead_order(size_t degree, size_t lead) {
  LaneOrder order(lead, 'G');
  for (size_t g = lead; g < degree; ++g) order += "SG";
  return order + LaneOrder(lead, 'S');
}

void add_orders(LaneOrder order, size_t gathers, size_t scatters, std::vector<LaneOrder>& all) {
  if (gathers + scatters == 0) return all.push_back(order);
  if (gathers > 0) add_orders(order + 'G', gathers - 1, scatters, all);
  if (scatters > gathers) add_orders(order + 'S', gathers, scatters - 1, all);
}

// Returns the order that always runs the task that can start earliest; in a tie, the AllGather.
LaneOrder greedy_order(const ChunkTimes& times) {
  const Replayed replayed(times);
  State state = replayed.begin();
  size_t g = 0, s = 0;
  double arrived = times.dispatch[0], compute = times.shared_end();
  while (s < times.degree()) {
    const bool must_gather = state.experts.empty(), can_gather = g < times.degree();
    const double gather_at = std::max(state.intra, arrived);
    if (must_gather || (can_gather && gather_at <= std::max(state.intra, state.experts.front()))) {
      replayed.gather(state, g, compute);
      compute = state.experts.back();
      if (++g < times.degree()) arrived += times.dispatch[g];
    } else {
      replayed.scatter(state, s++);
    }
  }
  return state.order;
}

class ParetoSearch {
 public:
  ParetoSearch(const ChunkTimes& times, OrderChoice best, double enough)
      : times_(times), replayed_(times), best_(std::move(best)), enough_(enough) {
    const size_t r = times.degree();
    left_gather_.assign(r + 1, 0);
    left_scatter_ = left_combine_ = left_gather_;
    for (size_t c = r; c-- > 0;) {
      left_gather_[c] = left_gather_[c + 1] + times.allgather[c];
      left_scatter_[c] = left_scatter_[c + 1] + times.reducescatter[c];
      left_combine_[c] = left_combine_[c + 1] + times.combine[c];
    }
  }

  // row[s] has the states with g AllGathers and s ReduceScatters done; the row for g + 1 is computed from it.
  OrderChoice run() {
    const size_t r = times_.degree();
    std::vector<std::vector<Known>> row(1, {{replayed_.begin(), times_.shared_end()}});
    for (size_t g = 0; g <= r; ++g) {
      std::vector<std::vector<Known>> next(g + 2);
      for (size_t s = 0; s <= g && s < row.size(); ++s)
        for (size_t i = 0; i < row[s].size(); ++i) {
          if (reached(best_.seconds)) return best_;
          const Known known = row[s][i];
          if (g < r) add_gathered(next[s], known, g, s);
          if (s < g) add_scattered(row, known, g, s);
          if (kept_ > kStateLimit) {
            best_.exact = false;
            return best_;
          }
        }
      row = std::move(next);
    }
    return best_;
  }

 private:
  struct Known {
    State state;
    double compute;  // end of the last expert
  };

  bool reached(double seconds) const { return seconds <= enough_ * (1 + kTie); }

  double at_least(const State& state, size_t g, size_t s) const {
    const double on_intra = state.intra + left_gather_[g] + left_scatter_[s] + times_.combine.back();
    return std::max(on_intra, state.combined + left_combine_[s]);
  }

  void add(std::vector<Known>& cell, Known known, size_t g, size_t s) {
    if (at_least(known.state, g, s) >= best_.seconds * (1 - kTie)) return;
    for (const Known& other : cell)
      if (other.compute <= known.compute && no_later(other.state, known.state)) return;
    kept_ -= std::erase_if(
        cell, [&](const Known& other) { return known.compute <= other.compute && no_later(known.state, other.state); });
    cell.push_back(std::move(known));
    ++kept_;
  }

  void add_gathered(std::vector<Known>& cell, Known known, size_t g, size_t s) {
    replayed_.gather(known.state, g, known.compute);
    known.compute = known.state.experts.back();
    add(cell, std::move(known), g + 1, s);
  }

  void add_scattered(std::vector<std::vector<Known>>& row, Known known, size_t g, size_t s) {
    replayed_.scatter(known.state, s);
    if (s + 1 == times_.degree()) {
      const double end = replayed_.end(known.state);
      if (end < best_.seconds * (1 - kTie)) best_ = {known.state.order, end, true};
      return;
    }
    if (row.size() < s + 2) row.resize(s + 2);
    add(row[s + 1], std::move(known), g, s + 1);
  }

  const ChunkTimes& times_;
  Replayed replayed_;
  OrderChoice best_;
  double enough_;
  size_t kept_ = 0;
  std::vector<double> left_gather_, left_scatter_, left_combine_;
};

}  // namespace

std::vector<LaneOrder> lane_orders(size_t degree) {
  std::vector<LaneOrder> orders;
  if (degree <= kAllOrders) {
    add_orders({}, degree, degree, orders);
    return orders;
  }
  for (size_t lead = degree; lead >= 1; --lead) orders.push_back(lead_order(degree, lead));
  return orders;
}

double order_seconds(const ChunkTimes& times, const LaneOrder& order) {
  const Replayed replayed(times);
  State state = replayed.begin();
  size_t g = 0, s = 0;
  double compute = times.shared_end();
  for (const char task : order.empty() ? gathers_first(times.degree()) : order) {
    if (task == 'G') {
      replayed.gather(state, g++, compute);
      compute = state.experts.back();
    } else {
      replayed.scatter(state, s++);
    }
  }
  return replayed.end(state);
}

OrderChoice best_lane_order(const ChunkTimes& times) {
  const size_t r = times.degree();
  const double enough = order_lower_bound(times);
  OrderChoice best{gathers_first(r), order_seconds(times, {}), true};
  const auto consider = [&](const LaneOrder& order) {
    const double seconds = order_seconds(times, order);
    if (seconds < best.seconds * (1 - kTie)) best = {order, seconds, true};
  };
  if (r > 1 && best.seconds > enough * (1 + kTie)) consider(greedy_order(times));
  for (size_t lead = 1; lead < r && best.seconds > enough * (1 + kTie); ++lead) consider(lead_order(r, lead));
  if (r == 1 || best.seconds <= enough * (1 + kTie)) return best;
  return ParetoSearch(times, best, enough).run();
}

namespace {

ChunkTimes chunk_times(const LayerPricer& pricer, Phase phase, int degree, double gradients) {
  ChunkTimes times;
  // Without an AlltoAll, no task of the MoE part waits for gradients.
  times.gradients = pricer.has(GroupKind::ep) ? gradients : 0;
  const bool exact = pricer.shape().rounding == Rounding::exact;
  const auto of = [&](TaskKind kind, GroupKind group) {
    std::vector<double> chunks(degree);
    if (group != GroupKind::none && !pricer.has(group)) return chunks;
    const double shorter = exact ? pricer.all_rows() / degree : static_cast<double>(pricer.rows() / degree);
    const double shorter_s = pricer.chunk_seconds(kind, phase, shorter);
    const double longer_s = exact ? shorter_s : pricer.chunk_seconds(kind, phase, shorter + 1);
    for (size_t c = 0; c < chunks.size(); ++c)
      chunks[c] = static_cast<int64_t>(c) < pricer.rows() % degree ? longer_s : shorter_s;
    return chunks;
  };
  times.dispatch = of(TaskKind::dispatch, GroupKind::ep);
  times.allgather = of(TaskKind::allgather, GroupKind::esp);
  times.expert = of(TaskKind::expert, GroupKind::none);
  times.reducescatter = of(TaskKind::reducescatter, GroupKind::esp);
  times.combine = of(TaskKind::combine, GroupKind::ep);
  if (!pricer.outline().shared_expert) return times;
  times.shared = pricer.dense_seconds(TaskKind::shared, phase);
  if (!pricer.has(GroupKind::mp)) return times;
  times.shared_allgather = pricer.dense_seconds(TaskKind::shared_allgather, phase);
  times.shared_reducescatter = pricer.dense_seconds(TaskKind::shared_reducescatter, phase);
  return times;
}

// Returns whether the order makes a difference. It does not if ESP's collectives share their lane with the AlltoAlls
// or, without an AlltoAll, with the gradients.
bool order_matters(const LayerPricer& pricer) {
  const auto network = [&](GroupKind kind) { return pricer.groups()[kind].network; };
  const Network beside = network(pricer.has(GroupKind::ep) ? GroupKind::ep : GroupKind::dp);
  return pricer.has(GroupKind::esp) && beside != network(GroupKind::esp);
}

// Returns whether a shared expert's collectives use another network than ESP's, which chunk_times does not support.
bool shared_elsewhere(const LayerPricer& pricer) {
  const auto network = [&](GroupKind kind) { return pricer.groups()[kind].network; };
  return pricer.outline().shared_expert && pricer.has(GroupKind::mp) &&
         network(GroupKind::mp) != network(GroupKind::esp);
}

// Returns the seconds of the best forward in FSMoE's order, without the MoE part.
double dense_forward(const LayerPricer& pricer, const LayerResult& best) {
  if (!pricer.outline().shared_expert) return best.forward_s - best.moe_forward_s;
  return best.forward_s - order_seconds(chunk_times(pricer, Phase::forward, best.decision.degree_forward, 0), {});
}

void improve_backward(LayerReplay& layer, int degree, LayerResult& best) {
  const LayerPricer& pricer = layer.pricer;
  const bool split = pricer.has(GroupKind::dp) && pricer.gradient_bytes() > 0;
  std::vector<int64_t> in_moe{0};
  if (split && best.decision.gar_in_moe_bytes > 0) in_moe.push_back(best.decision.gar_in_moe_bytes);
  for (size_t i = 0; i < in_moe.size() && i < 4; ++i) {
    const double gradients = in_moe[i] > 0 ? pricer.gradient_seconds(in_moe[i]) : 0;
    const OrderChoice order = best_lane_order(chunk_times(pricer, Phase::backward, degree, gradients));
    best.exact_order &= order.exact;
    Decision decision = best.decision;
    decision.degree_backward = degree;
    decision.order_backward = order.order;
    Candidate found{decision, 0};
    if (split)
      found = layer.best_split_of(decision, best.backward_s);
    else
      found.seconds = layer.seconds(decision, Phases::backward);
    if (!is_better(found.seconds, best.backward_s)) continue;
    best.backward_s = found.seconds;
    best.decision = found.decision;
    if (split && std::ranges::find(in_moe, found.decision.gar_in_moe_bytes) == in_moe.end())
      in_moe.push_back(found.decision.gar_in_moe_bytes);
  }
}

// The best order of one phase found under contention. No partial order dominates another there, so each order is
// replayed.
struct ContendedOrder {
  Decision decision;  // degree, order and split of one phase
  double seconds = 0;
  double least = 0;  // lower bound over this degree's orders; below `seconds` if not all were tried
};

class ContendedOrders {
 public:
  ContendedOrders(const Schedule& schedule, const LayerPricer& pricer) : schedule_(schedule), pricer_(pricer) {}

  // Returns the best order of `phase` at this degree, or `from` if no order is faster. Every order that no bound
  // excludes is tried with its best gradient split: up to degree kAllOrders all orders; beyond it those of
  // lane_orders(), and then swaps of neighbours in the best one. `least`: a lower bound for this degree.
  ContendedOrder best(Phase phase, int degree, double least, ContendedOrder from);

 private:
  void visit(const LaneOrder& order);
  // Returns the best number of bytes in the first of a split's two places; empty if none beats the best result so far.
  std::optional<int64_t> best_bytes(const Decision& split);
  void swap_neighbours();
  double replay(const Decision& decision);
  Decision with(const LaneOrder& order) const;

  const Schedule& schedule_;
  const LayerPricer& pricer_;
  Phase phase_ = Phase::forward;
  int degree_ = 1;
  ContendedOrder best_;
  std::vector<double> seconds_, ends_;  // scratch
};

Decision ContendedOrders::with(const LaneOrder& order) const {
  Decision decision = best_.decision;
  const bool forward = phase_ == Phase::forward;
  (forward ? decision.degree_forward : decision.degree_backward) = degree_;
  (forward ? decision.order_forward : decision.order_backward) = order;
  return decision;
}

double ContendedOrders::replay(const Decision& decision) {
  const bool forward = phase_ == Phase::forward;
  const GradientPlacement placement =
      forward ? GradientPlacement{} : placement_of(schedule_, pricer_.groups(), pricer_.shape(), decision);
  const CompiledStructure c(
      structure_key(schedule_, pricer_.outline(), decision, placement, forward ? Phases::forward : Phases::backward));
  pricer_.price(*c.structure, slices_of(schedule_, pricer_.shape(), decision), seconds_);
  const double seconds = c.makespan(seconds_, pricer_.profile().contention, ends_);
  if (is_better(seconds, best_.seconds)) best_ = {decision, seconds, best_.least};
  return seconds;
}

void ContendedOrders::visit(const LaneOrder& order) {
  const int64_t all = pricer_.has(GroupKind::dp) ? pricer_.gradient_bytes() : 0;
  const int64_t element = bytes_of(pricer_.shape().layer.dtype);
  Decision split = with(order);
  if (phase_ == Phase::forward || all == 0) {
    replay(split);
    return;
  }
  for (const SplitPlaces places : split_places(schedule_, true)) {
    split_gradients(schedule_, places, element, all, split);
    const auto best_between = all < 2 * element ? std::optional(int64_t{0}) : best_bytes(split);
    if (!best_between) continue;
    for (const int64_t first : {int64_t{0}, all, *best_between}) {
      split_gradients(schedule_, places, first, all, split);
      replay(split);
    }
  }
}

std::optional<int64_t> ContendedOrders::best_bytes(const Decision& split) {
  const CompiledStructure both(structure_key(schedule_, pricer_.outline(), split,
                                             placement_of(schedule_, pricer_.groups(), pricer_.shape(), split),
                                             Phases::backward));
  pricer_.price(*both.structure, slices_of(schedule_, pricer_.shape(), split), seconds_);
  if (!is_better(min_free_split(both.replay, *both.structure, pricer_, seconds_), best_.seconds)) return std::nullopt;
  return best_contended_split(both.contended_replay(pricer_.profile().contention), *both.structure, pricer_, seconds_);
}

void ContendedOrders::swap_neighbours() {
  const auto order_of = [&](const Decision& d) {
    return phase_ == Phase::forward ? d.order_forward : d.order_backward;
  };
  for (double before = best_.seconds + 1; is_better(best_.seconds, before);) {
    before = best_.seconds;
    const LaneOrder from = order_of(best_.decision);
    if (from.size() != 2 * static_cast<size_t>(degree_)) return;  // the best order belongs to another degree
    // AllGathers before i whose ReduceScatter comes later.
    int ahead = 0;
    for (size_t i = 0; i + 1 < from.size(); ++i) {
      ahead += from[i] == 'G' ? 1 : -1;
      if (from[i] == from[i + 1] || (from[i] == 'G' && ahead == 1)) continue;  // swapping would put an S before its G
      LaneOrder swapped = from;
      std::swap(swapped[i], swapped[i + 1]);
      replay(with(swapped));
    }
    if (is_better(best_.seconds, before)) visit(order_of(best_.decision));
  }
}

ContendedOrder ContendedOrders::best(Phase phase, int degree, double least, ContendedOrder from) {
  phase_ = phase;
  degree_ = degree;
  const double before = from.seconds;
  best_ = std::move(from);
  best_.least = least;
  for (const LaneOrder& order : lane_orders(static_cast<size_t>(degree))) visit(order);
  if (static_cast<size_t>(degree) <= kAllOrders)
    best_.least = best_.seconds;
  else
    swap_neighbours();
  best_.least = std::min(best_.least, before);
  return best_;
}

// Searches the orders of every degree that its bound does not exclude, smaller degrees first.
void contended_orders(LayerReplay& layer, const DegreeChoice& choice, LayerResult& best) {
  const LayerPricer& pricer = layer.pricer;
  const PhaseBound forward_bound = layer.bound(Phase::forward), backward_bound = layer.bound(Phase::backward);
  ContendedOrders orders(layer.schedule, layer.pricer);
  double least = 0;
  for (const Phase phase : {Phase::forward, Phase::backward}) {
    const bool forward = phase == Phase::forward;
    const int fixed = forward ? choice.forward : choice.backward;
    const int64_t sent = forward || !pricer.has(GroupKind::dp) ? 0 : pricer.gradient_bytes();
    const double gradients = min_gradient_seconds(pricer, sent);
    double& seconds = forward ? best.forward_s : best.backward_s;
    double min_open = seconds;
    const PhaseBound& bound = forward ? forward_bound : backward_bound;
    for (const int r : tried_degrees(fixed, pricer)) {
      if (no_faster_degree_from(r, seconds, [&](int min_degree) { return bound.from(min_degree); })) break;
      const double free = bound.at(r).seconds;
      if (r < 2 || !is_better(free, seconds)) continue;
      const double at_least = std::max(free, min_pass_seconds(pricer, layer.pass(r, phase), gradients));
      if (!is_better(at_least, seconds)) continue;
      const ContendedOrder found = orders.best(phase, r, at_least, {best.decision, seconds, 0});
      seconds = found.seconds;
      best.decision = found.decision;
      min_open = std::min(min_open, found.least);
    }
    least += (forward ? best.forwards : 1) * std::min(min_open, seconds);
  }
  best.gap = std::max(0.0, best.total_s() / least - 1);
  best.exact_order = best.gap <= 1e-9;
}

}  // namespace

// See the header.
void improve_orders(LayerReplay& layer, const DegreeChoice& choice, LayerResult& best) {
  const LayerPricer& pricer = layer.pricer;
  if (!order_matters(pricer)) return;
  if (!pricer.profile().contention.none() || shared_elsewhere(pricer)) return contended_orders(layer, choice, best);
  const PhaseBound forward_bound = layer.bound(Phase::forward), backward_bound = layer.bound(Phase::backward);
  const int most = largest_degree(pricer);
  const double dense = dense_forward(pricer, best);
  // Bounds of degrees whose orders were not all excluded.
  double open_forward = best.forward_s, open_backward = best.backward_s;
  for (const int r : tried_degrees(choice.forward, pricer)) {
    if (no_faster_degree_from(r, best.forward_s, [&](int least) { return forward_bound.from(least); })) break;
    if (r < 2 || r > most || !is_better(forward_bound.at(r).seconds, best.forward_s)) continue;
    const OrderChoice order = best_lane_order(chunk_times(pricer, Phase::forward, r, 0));
    best.exact_order &= order.exact;
    if (!order.exact) open_forward = std::min(open_forward, forward_bound.at(r).seconds);
    if (!is_better(dense + order.seconds, best.forward_s)) continue;
    best.forward_s = dense + order.seconds;
    best.decision.degree_forward = r;
    best.decision.order_forward = order.order;
  }
  for (const int r : tried_degrees(choice.backward, pricer)) {
    if (no_faster_degree_from(r, best.backward_s, [&](int least) { return backward_bound.from(least); })) break;
    if (r < 2 || r > most || !is_better(backward_bound.at(r).seconds, best.backward_s)) continue;
    const bool exact = std::exchange(best.exact_order, true);
    improve_backward(layer, r, best);
    if (!best.exact_order) open_backward = std::min(open_backward, backward_bound.at(r).seconds);
    best.exact_order &= exact;
  }
  const double least =
      best.forwards * std::min(open_forward, best.forward_s) + std::min(open_backward, best.backward_s);
  if (!best.exact_order) best.gap = best.total_s() / least - 1;
}

std::vector<LaneOrder> backward_orders(LayerReplay& layer, int degree) {
  const LayerPricer& pricer = layer.pricer;
  std::vector<LaneOrder> orders;
  if (!layer.schedule.searched_order || degree < 2 || !order_matters(pricer)) return orders;
  const int64_t made = pricer.has(GroupKind::dp) ? pricer.gradient_bytes() : 0;
  for (const int64_t bytes : {int64_t{0}, made / 2, made}) {
    const double gradients = pricer.slice_seconds(bytes);
    const LaneOrder order = best_lane_order(chunk_times(pricer, Phase::backward, degree, gradients)).order;
    if (std::ranges::find(orders, order) == orders.end()) orders.push_back(order);
  }
  return orders;
}

}  // namespace moe::search
