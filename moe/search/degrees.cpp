#include "moe/search/degrees.h"

#include <algorithm>

#include "moe/search/detail/lane_order.h"
#include "moe/search/detail/micro_ops.h"
#include "moe/search/layer_search.h"

namespace moe {
namespace {

// Returns the smallest degree at which a chunk of an AlltoAll has at most micro_op_bytes.
int degree_by_size(const LayerPricer& pricer, int64_t micro_op_bytes) {
  const double bytes = whole_work(TaskKind::dispatch, Phase::forward, pricer.shape(), Flow::sharded).bytes;
  const double chunks = std::ceil(bytes / static_cast<double>(micro_op_bytes));
  return static_cast<int>(std::clamp(chunks, 1.0, static_cast<double>(largest_degree(pricer))));
}

int lane_of(const Structure& structure, Network network) {
  return static_cast<int>(std::ranges::find_if(structure.lanes, [&](const Lane& lane) { return lane.owns(network); }) -
                          structure.lanes.begin());
}

// Finds the best degrees and the best places of gradients for one choice.
class DegreeSearch {
 public:
  DegreeSearch(search::LayerReplay& layer, const DegreeChoice& choice)
      : layer_(layer), schedule_(layer.schedule), pricer_(layer.pricer), choice_(choice) {}

  search::Candidate best() { return schedule_.degrees == DegreePolicy::apart ? decide_separately() : decide_jointly(); }

 private:
  // Decides r_f by the forward and r_b by the backward.
  search::Candidate decide_separately() {
    const search::Candidate forward = best_forward();
    const PhaseBound bound = layer_.bound(Phase::backward);
    const auto from = [&](int r) { return bound.from(r); };
    const bool best_first = splits_gradients(schedule_) && !pricer_.profile().contention.none();
    search::Candidate best{{}, search::kUnpriced};
    for (const int r : best_first ? degrees_best_first(bound) : tried_degrees(choice_.backward, pricer_)) {
      if (!best_first && no_faster_degree_from(r, best.seconds, from)) break;
      if (best.seconds < search::kUnpriced && !search::is_better(bound.at(r).seconds, best.seconds)) continue;
      const search::Candidate c = best_backward(r, best.seconds);
      const bool tie = !search::is_better(best.seconds, c.seconds) && r < best.decision.degree_backward;
      if (search::is_better(c.seconds, best.seconds) || tie) best = c;
    }
    best.decision.degree_forward = forward.decision.degree_forward;
    best.decision.order_forward = forward.decision.order_forward;
    best.seconds += forwards_of(pricer_.outline()) * forward.seconds;
    return best;
  }

  search::Candidate decide_jointly() {
    const PhaseBound forward_bound = layer_.bound(Phase::forward), backward_bound = layer_.bound(Phase::backward);
    const int forwards = forwards_of(pricer_.outline());
    const auto from = [&](int r) { return forwards * forward_bound.from(r) + backward_bound.from(r); };
    const auto at = [&](int r) { return forwards * forward_bound.at(r).seconds + backward_bound.at(r).seconds; };
    search::Candidate best{{}, search::kUnpriced};
    for (const int r : tried_degrees(choice_.forward, pricer_)) {
      if (no_faster_degree_from(r, best.seconds, from)) break;
      if (best.seconds < search::kUnpriced &&
          (!search::is_better(at(r), best.seconds) || too_small(schedule_, pricer_, r, choice_.min_chunk_bytes)))
        continue;
      const double forward = forwards * layer_.seconds({r, r}, Phases::forward);
      search::Candidate c = best_backward(r, best.seconds - forward);
      c.seconds += forward;
      if (search::is_better(c.seconds, best.seconds)) best = c;
    }
    return best;
  }

  search::Candidate best_forward() {
    const PhaseBound bound = layer_.bound(Phase::forward);
    search::Candidate best{{}, search::kUnpriced};
    for (const int r : tried_degrees(choice_.forward, pricer_)) {
      if (no_faster_degree_from(r, best.seconds, [&](int least) { return bound.from(least); })) break;
      if (best.seconds < search::kUnpriced && !search::is_better(bound.at(r).seconds, best.seconds)) continue;
      const double seconds = layer_.seconds({r, 1}, Phases::forward);
      if (search::is_better(seconds, best.seconds)) best = {{r, 1}, seconds};
    }
    return best;
  }

  // Returns the degrees in the order in which to try them if finding a split takes many replays: those that are fastest
  // with all gradients in one place come first, so that the bound soon excludes the others.
  std::vector<int> degrees_best_first(const PhaseBound& bound) {
    std::vector<std::pair<double, int>> order;
    double least = search::kUnpriced;
    for (const int r : tried_degrees(choice_.backward, pricer_)) {
      if (no_faster_degree_from(r, least, [&](int first) { return bound.from(first); })) break;
      if (least < search::kUnpriced && !search::is_better(bound.at(r).seconds, least)) continue;
      if (least < search::kUnpriced && !search::is_better(layer_.min_contended(r), least)) continue;
      order.emplace_back(layer_.seconds(with_split(schedule_, 1, r, 0), Phases::backward), r);
      least = std::min(least, order.back().first);
    }
    std::ranges::sort(order);
    std::vector<int> degrees;
    for (const auto& [seconds, r] : order) degrees.push_back(r);
    return degrees;
  }

  // Returns the backward of this degree with its best split; if no split beats `to_beat`, with any split.
  search::Candidate best_backward(int degree, double to_beat) {
    if (schedule_.gradients == GradientPolicy::micro_ops) return best_micro_ops(degree);
    const Decision decision{schedule_.degrees == DegreePolicy::apart ? 1 : degree, degree};
    if (layer_.splits()) return layer_.best_split_of(decision, to_beat);
    return {decision, layer_.seconds(decision, Phases::backward)};
  }

  // Places micro-ops where a replay without them leaves their lane idle.
  search::Candidate best_micro_ops(int degree) {
    Decision decision{degree, degree};
    decision.micro_op_bytes = choice_.micro_op_bytes;
    const StructureKey key = structure_key(schedule_, pricer_.outline(), decision, {}, Phases::backward);
    const auto cached = layer_.store.get(key);
    const search::CompiledStructure& c = *cached;
    pricer_.price(*c.structure, {}, layer_.store.seconds);
    std::vector<search::MicroOp> pieces;
    const auto add = [&](TaskKind kind, int made_by, const std::vector<int64_t>& all) {
      const GroupKind group = group_of(schedule_.flow, kind);
      if (!pricer_.has(group)) return;
      const int lane = lane_of(*c.structure, pricer_.groups()[group].network);
      for (const int64_t bytes : all) pieces.push_back({pricer_.gradient_seconds(bytes, kind), lane, made_by});
    };
    add(TaskKind::gradient, -1, gradient_pieces(schedule_, pricer_.shape(), decision.micro_op_bytes));
    add(TaskKind::expert_gradient, last_expert(*c.structure),
        expert_gradient_pieces(schedule_, pricer_.shape(), decision.micro_op_bytes));
    const search::MicroOps frozen =
        search::freeze_micro_ops(*c.structure, layer_.store.seconds, pieces, schedule_.holds_micro_ops);
    for (const search::MicroOps::Place& place : frozen.places) decision.gaps.push_back(place.gap);
    if (pricer_.profile().contention.none()) return {decision, frozen.seconds};
    return {decision, layer_.seconds(decision, Phases::backward)};
  }

  search::LayerReplay& layer_;
  const Schedule& schedule_;
  const LayerPricer& pricer_;
  const DegreeChoice& choice_;
};

}  // namespace

void check_choice(const Schedule& schedule, DegreeChoice& choice) {
  require<BadInput>(choice.forward >= 0 && choice.backward >= 0, "degree: found {} and {}, expected >= 0 (0: tuned)",
                    choice.forward, choice.backward);
  require<BadInput>(choice.micro_op_bytes >= 0, "micro-op: found {} bytes, expected >= 0 (0: tuned)",
                    choice.micro_op_bytes);
  if (schedule.degrees == DegreePolicy::one) {
    require_usable(choice.forward <= 1 && choice.backward <= 1, schedule, "found degrees {} and {}, expected 1",
                   choice.forward, choice.backward);
    choice.forward = choice.backward = 1;
  } else if (schedule.degrees != DegreePolicy::apart) {
    if (choice.forward == 0) choice.forward = choice.backward;
    if (choice.backward == 0) choice.backward = choice.forward;
    require_usable(choice.forward == choice.backward, schedule,
                   "found degrees {} and {}, expected one degree for both phases", choice.forward, choice.backward);
  }
}

int degree_limit(const LayerCase& shape) { return shape.rounding == Rounding::lcm ? kMaxPaddingDegree : kMaxDegree; }

int largest_degree(const LayerPricer& pricer) {
  return static_cast<int>(std::min<int64_t>(degree_limit(pricer.shape()), capacity_rows(pricer.shape())));
}

std::vector<int> tried_degrees(int fixed, const LayerPricer& pricer) {
  if (fixed > 0) return {fixed};
  std::vector<int> tried;
  for (int r = 1; r <= largest_degree(pricer); ++r)
    if (pricer.shape().row_multiple == 1 || pricer.rows() % r == 0) tried.push_back(r);
  return tried;
}

bool too_small(const Schedule& schedule, const LayerPricer& pricer, int degree, int64_t min_chunk_bytes) {
  if (schedule.flow != Flow::dropped || degree == 1) return false;
  for (const TaskKind kind : {TaskKind::dispatch, TaskKind::allgather})
    if (whole_work(kind, Phase::forward, pricer.shape(), schedule.flow).bytes / degree <
        static_cast<double>(min_chunk_bytes))
      return true;
  return false;
}

std::vector<DegreeChoice> sized_choices(const Schedule& schedule, const LayerPricer& pricer,
                                        const DegreeChoice& choice) {
  const bool micro_ops = schedule.gradients == GradientPolicy::micro_ops && schedule.pieces == Pieces::cut;
  std::vector<int64_t> sizes{choice.micro_op_bytes};
  if (choice.micro_op_bytes == 0) sizes = {kMicroOpBytes};
  if (choice.micro_op_bytes == 0 && micro_ops)
    for (const int64_t megabytes : {1, 2, 5, 10, 20, 50, 100}) sizes.push_back(megabytes * 1'000'000);
  std::vector<DegreeChoice> sized;
  for (const int64_t size : sizes) {
    DegreeChoice& of = sized.emplace_back(choice);
    of.micro_op_bytes = size;
    if (schedule.degrees == DegreePolicy::by_size && choice.forward == 0)
      of.forward = of.backward = degree_by_size(pricer, size);
  }
  return sized;
}

DegreeChoice within_rows(DegreeChoice choice, const LayerPricer& pricer) {
  const int64_t rows = capacity_rows(pricer.shape());
  for (int* degree : {&choice.forward, &choice.backward}) {
    if (*degree <= rows) continue;
    pricer.note(
        {PriceNote::Kind::degree_above, fmt::format("found {}, treated as {}, one row a chunk", *degree, rows)});
    *degree = static_cast<int>(rows);
  }
  return choice;
}

LayerResult tune_degrees(search::LayerReplay layer, const DegreeChoice& choice) {
  const LayerCase& shape = layer.pricer.shape();  // with a single row, there is only degree 1
  if (shape.rounding == Rounding::lcm && shape.row_multiple == 1 && layer.pricer.rows() > 1)
    return search::tune_padded(layer, choice);
  search::Candidate best{{}, search::kUnpriced};
  for (const DegreeChoice& sized : sized_choices(layer.schedule, layer.pricer, choice)) {
    const search::Candidate c = DegreeSearch(layer, sized).best();
    if (search::is_better(c.seconds, best.seconds)) best = c;
  }
  LayerResult result = layer.result(best.decision);
  if (!layer.schedule.searched_order) return result;
  search::improve_orders(layer, choice, result);
  const bool exact = result.exact_order;
  const double gap = result.gap;
  result = layer.result(result.decision);
  result.exact_order = exact;
  result.gap = gap;
  return result;
}

}  // namespace moe
