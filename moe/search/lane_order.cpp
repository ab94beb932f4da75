#include "moe/search/lane_order.h"

#include <algorithm>
#include <numeric>

namespace moe::search {
namespace {

constexpr size_t kStateLimit = 20000;  // partial orders kept in one search: r = 12 stays below it
constexpr double kTie = 1e-12;

double sum(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

// Returns the most of each lane's load between what leads to it and what follows it.
double least_possible(const ChunkTimes& t) {
  const double to_intra = t.dispatch.front(), from_intra = t.combine.back();
  return std::max({sum(t.dispatch) + t.gradients + sum(t.combine),
                   to_intra + sum(t.allgather) + sum(t.reducescatter) + from_intra,
                   to_intra + t.allgather.front() + sum(t.expert) + t.reducescatter.back() + from_intra});
}

// Holds what a partial order of g AllGathers and s ReduceScatters leaves: ends of the intra lane, of the last combine
// and of the experts whose ReduceScatter is still to come (the last of which is the compute lane's).
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

  // Adds an AllGather. `compute`: the end of the last expert that was started, where none of them waits any more.
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

// Returns `lead` AllGathers, then ReduceScatters and AllGathers in turn.
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

// Returns the order of whichever can start first; at a tie the AllGather.
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

  // Rows by s of the states with g AllGathers done; a row of g + 1 is made from that of g.
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
  const double enough = least_possible(times);
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

}  // namespace moe::search
