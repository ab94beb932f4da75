#include "moe/search/searched_orders.h"

#include <algorithm>
#include <utility>

#include "moe/search/contended_orders.h"
#include "moe/search/lane_order.h"

namespace moe::search {
namespace {

ChunkTimes chunk_times(const LayerPricer& pricer, Phase phase, int degree, double gradients) {
  ChunkTimes times;
  times.gradients = pricer.has(GroupKind::ep) ? gradients : 0;  // else nothing of the MoE part waits behind them
  const bool exact = pricer.shape().rounding == Rounding::exact;
  const auto of = [&](TaskKind kind, GroupKind group) {
    std::vector<double> chunks(static_cast<size_t>(degree));
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

// Says whether there is more than one order: one lane for all has one. Without an AlltoAll gradients take its place.
bool order_matters(const LayerPricer& pricer) {
  const auto network = [&](GroupKind kind) { return pricer.groups()[static_cast<size_t>(kind)].network; };
  const Network beside = network(pricer.has(GroupKind::ep) ? GroupKind::ep : GroupKind::dp);
  return pricer.has(GroupKind::esp) && beside != network(GroupKind::esp);
}

// Says whether a shared expert's collectives have the lane of the AlltoAlls, which chunk_times does not know.
bool shared_elsewhere(const LayerPricer& pricer) {
  const auto network = [&](GroupKind kind) { return pricer.groups()[static_cast<size_t>(kind)].network; };
  return pricer.outline().shared_expert && pricer.has(GroupKind::mp) &&
         network(GroupKind::mp) != network(GroupKind::esp);
}

// Returns what the best forward, of FSMoE's order, has beside the MoE part.
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
    if (!better(found.seconds, best.backward_s)) continue;
    best.backward_s = found.seconds;
    best.decision = found.decision;
    if (split && std::ranges::find(in_moe, found.decision.gar_in_moe_bytes) == in_moe.end())
      in_moe.push_back(found.decision.gar_in_moe_bytes);
  }
}

// Tries every degree that its bound leaves open, smaller ones first.
void contended_orders(LayerReplay& layer, const DegreeChoice& choice, LayerResult& best) {
  const LayerPricer& pricer = layer.pricer;
  const PhaseBound forward_bound = layer.bound(Phase::forward), backward_bound = layer.bound(Phase::backward);
  ContendedOrders orders(layer.schedule, layer.pricer);
  double least = 0;
  for (const Phase phase : {Phase::forward, Phase::backward}) {
    const bool forward = phase == Phase::forward;
    const int fixed = forward ? choice.forward : choice.backward;
    const int64_t sent = forward || !pricer.has(GroupKind::dp) ? 0 : pricer.gradient_bytes();
    const double gradients = least_gradient_seconds(pricer, sent);
    double& seconds = forward ? best.forward_s : best.backward_s;
    double least_open = seconds;
    const PhaseBound& bound = forward ? forward_bound : backward_bound;
    for (const int r : tried_degrees(fixed, pricer)) {
      if (none_from(r, seconds, [&](int least_degree) { return bound.from(least_degree); })) break;
      const double free = bound.at(r).seconds;
      if (r < 2 || !better(free, seconds)) continue;
      const double at_least = std::max(free, least_pass_seconds(pricer, layer.pass(r, phase), gradients));
      if (!better(at_least, seconds)) continue;
      const ContendedOrder found = orders.best(phase, r, at_least, {best.decision, seconds, 0});
      seconds = found.seconds;
      best.decision = found.decision;
      least_open = std::min(least_open, found.least);
    }
    least += (forward ? best.forwards : 1) * std::min(least_open, seconds);
  }
  best.gap = std::max(0.0, best.total_s() / least - 1);
  best.exact_order = best.gap <= 1e-9;
}

}  // namespace

// Improves the forward's order, and the backward's for the gradients that FSMoE's order puts into the MoE part and for
// none, each with its best split, until neither changes.
void improve_orders(LayerReplay& layer, const DegreeChoice& choice, LayerResult& best) {
  const LayerPricer& pricer = layer.pricer;
  if (!order_matters(pricer)) return;
  if (!pricer.profile().contention.none() || shared_elsewhere(pricer)) return contended_orders(layer, choice, best);
  const PhaseBound forward_bound = layer.bound(Phase::forward), backward_bound = layer.bound(Phase::backward);
  const int most = largest_degree(pricer);
  const double dense = dense_forward(pricer, best);
  double open_forward = best.forward_s, open_backward = best.backward_s;  // bounds of degrees searched in part
  for (const int r : tried_degrees(choice.forward, pricer)) {
    if (none_from(r, best.forward_s, [&](int least) { return forward_bound.from(least); })) break;
    if (r < 2 || r > most || !better(forward_bound.at(r).seconds, best.forward_s)) continue;
    const OrderChoice order = best_lane_order(chunk_times(pricer, Phase::forward, r, 0));
    best.exact_order &= order.exact;
    if (!order.exact) open_forward = std::min(open_forward, forward_bound.at(r).seconds);
    if (!better(dense + order.seconds, best.forward_s)) continue;
    best.forward_s = dense + order.seconds;
    best.decision.degree_forward = r;
    best.decision.order_forward = order.order;
  }
  for (const int r : tried_degrees(choice.backward, pricer)) {
    if (none_from(r, best.backward_s, [&](int least) { return backward_bound.from(least); })) break;
    if (r < 2 || r > most || !better(backward_bound.at(r).seconds, best.backward_s)) continue;
    const bool exact = std::exchange(best.exact_order, true);
    improve_backward(layer, r, best);
    if (!best.exact_order) open_backward = std::min(open_backward, backward_bound.at(r).seconds);
    best.exact_order &= exact;
  }
  const double least =
      best.forwards * std::min(open_forward, best.forward_s) + std::min(open_backward, best.backward_s);
  if (!best.exact_order) best.gap = best.total_s() / least - 1;
}

// Returns the orders that are best without contention: with no gradients in the MoE part, half a layer's, and all.
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
