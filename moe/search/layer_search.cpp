#include "moe/search/layer_search.h"

#include <algorithm>
#include <limits>
#include <set>

#include "moe/schedule/packing.h"

namespace moe {
namespace {

// Adds a note if a degree above the limit may be better.
void note_limit(search::LayerReplay layer, const DegreeChoice& choice, const LayerResult& result) {
  const DegreePolicy policy = layer.schedule.degrees;
  const int64_t rows = capacity_rows(layer.pricer.shape());
  const int limit = degree_limit(layer.pricer.shape());
  if (rows <= limit || policy == DegreePolicy::one) return;
  const auto beyond = [&](int fixed, Phase phase, double found_s) {
    return fixed == 0 ? layer.bound(phase).from(limit + 1) : found_s;
  };
  const double forward_s = beyond(choice.forward, Phase::forward, result.forward_s);
  const double backward_s = beyond(choice.backward, Phase::backward, result.backward_s);
  bool open = search::is_better(result.forwards * forward_s + backward_s, result.total_s());
  if (policy == DegreePolicy::apart)
    open = search::is_better(forward_s, result.forward_s) || search::is_better(backward_s, result.backward_s);
  if (policy == DegreePolicy::by_size) open = choice.forward == 0 && result.decision.degree_forward == limit;
  if (open)
    layer.pricer.note(
        {PriceNote::Kind::degree_limit, fmt::format("{} is the largest that is tried, of up to {} rows", limit, rows)});
}

// Adds the repeated forward to the backward's times, because the two do not overlap.
void add_forward_again(LayerResult& result) {
  for (; result.forwards > 1; --result.forwards) {
    result.backward_s += result.forward_s;
    result.bound.backward_s += result.bound.forward_s;
    result.degree_bound.backward_s += result.degree_bound.forward_s;
  }
}

}  // namespace

LayerResult LayerSearch::tune(const Schedule& schedule, const LayerPricer& pricer, DegreeChoice choice) {
  check_one_layer(schedule);
  check_choice(schedule, choice);
  choice = within_rows(choice, pricer);
  if (!schedule.variants.empty()) return tune_variants(*this, schedule, pricer, choice);
  check_shape(schedule, pricer.shape());
  LayerResult result = schedule.packs_experts ? tune_packed(replay(schedule, pricer), choice)
                                              : tune_degrees(replay(schedule, pricer), choice);
  note_limit(replay(schedule, pricer), choice, result);
  add_forward_again(result);
  return result;
}

LayerResult LayerSearch::evaluate(const Schedule& schedule, const LayerPricer& pricer, const Decision& decision) {
  LayerResult result;
  if (!schedule.variants.empty()) {
    require<BadInput>(std::ranges::count(schedule.variants, decision.variant) == 1,
                      "schedule {}: found a decision without a variant, expected one of its variants", schedule.name);
    result = evaluate(*decision.variant, pricer, decision);
    result.bound = degree_free_bound(schedule, pricer);
  } else if (const LayerCase decided = decided_case(pricer.shape(), decision); decided != pricer.shape()) {
    check_decision(schedule, decision);
    Decision inside = decision;
    inside.packing = 1;
    result = evaluate(schedule, LayerPricer(pricer.profile(), decided, pricer.options()), inside);
  } else {
    result = replay(schedule, pricer).result(decision);
    add_forward_again(result);
    return result;
  }
  result.schedule = schedule.name;
  result.decision = decision;
  return result;
}

namespace {

// Returns whether Parm's t_D1 <= t_D2 (Parm Eqs. 6 and 7). Both have AlltoAlls of E T M N_ESP / N_MP. D1 adds the MP
// AllGather of B L M; D2 has the second AlltoAll overlapped with its AllGather. If that overlap is measured (row saa),
// neither side counts the sum over ESP. Otherwise it is replayed, from the end of the experts to the end of the last
// combine, and both sides count the sum.
bool first_is_faster(const LayerPricer& pricer, double first_moe_s, double second_moe_s) {
  const double rows = pricer.all_rows();
  const double alltoall_s =
      pricer.has(GroupKind::ep_esp) ? pricer.chunk_seconds(TaskKind::dispatch, Phase::forward, rows, Flow::fused) : 0;
  const double expert_s = pricer.chunk_seconds(TaskKind::expert, Phase::forward, rows, Flow::fused);
  const double gather_s =
      pricer.has(GroupKind::mp) ? pricer.dense_seconds(TaskKind::mp_allgather, Phase::forward, Flow::fused) : 0;
  const std::optional<double> measured = pricer.saa_seconds();
  const double home_s = measured ? alltoall_s : first_moe_s - alltoall_s - expert_s;
  const double overlap_s = measured ? *measured : second_moe_s - alltoall_s - expert_s;
  return home_s + gather_s <= overlap_s * (1 + 1e-9);  // rounding must not decide a tie
}

}  // namespace

LayerResult tune_variants(LayerSearch& search, const Schedule& schedule, const LayerPricer& pricer,
                          const DegreeChoice& choice) {
  std::vector<LayerResult> results;
  for (const Schedule* variant : schedule.variants) {
    const bool one = variant->degrees == DegreePolicy::one;
    if (one && std::max(choice.forward, choice.backward) > 1) continue;  // a larger degree was requested
    LayerResult result = search.tune(*variant, pricer, choice);
    result.schedule = schedule.name;
    result.decision.variant = variant;
    results.push_back(result);
  }
  Bound bound = results.front().bound;
  for (const LayerResult& result : results) bound = min_phases(bound, result.bound);
  for (LayerResult& result : results) result.bound = bound;
  if (schedule.flow != Flow::fused) return *std::ranges::min_element(results, {}, &LayerResult::total_s);
  LayerCase routed = pricer.shape();  // Parm's model has no shared expert
  routed.layer.shared_hidden = 0;
  const LayerPricer alone(pricer.profile(), routed, pricer.options());
  const auto moe_s = [&](size_t i) { return search.tune(*schedule.variants[i], alone, choice).moe_forward_s; };
  return results[first_is_faster(alone, moe_s(0), moe_s(1)) ? 0 : 1];
}

namespace {

LayerResult tune_packing(search::LayerReplay layer, const DegreeChoice& choice) {
  Decision decision;
  decision.packing = choice.packing;
  const LayerPricer packed(layer.pricer.profile(), decided_case(layer.pricer.shape(), decision),
                           layer.pricer.options());
  require<Unsupported>(choice.packing == 1 || !choice.fits || choice.fits(packed.shape(), layer.schedule.flow),
                       "packing {}: a rank has no memory for {} experts of each layer", choice.packing,
                       packed.shape().layer.experts / packed.shape().parallel.ep);
  LayerResult result = tune_degrees({layer.schedule, packed, layer.store}, choice);
  result.decision.packing = choice.packing;
  return result;
}

}  // namespace

// See the header. p doubles while the experts' micro-op is shorter than the AlltoAll's (Lina section 4.2), the group
// sizes divide and the profile has rows for them.
std::vector<LayerResult> tune_packings(search::LayerReplay layer, DegreeChoice choice) {
  const Schedule& schedule = layer.schedule;
  const LayerPricer& pricer = layer.pricer;
  check_choice(schedule, choice);
  check_shape(schedule, pricer.shape());
  if (choice.packing > 0) return {tune_packing(layer, choice)};
  std::vector<LayerResult> results{tune_degrees(layer, choice)};
  for (int packing = 1; pricer.shape().parallel.ep % (2 * packing) == 0;) {
    const LayerPricer packed(pricer.profile(), decided_case(pricer.shape(), results.back().decision), pricer.options());
    if (!packed.has(GroupKind::ep)) break;
    const double rows = static_cast<double>(packed.rows()) / results.back().decision.degree_forward;
    if (!packs_further({.expert_s = packed.chunk_seconds(TaskKind::expert, Phase::forward, rows),
                        .alltoall_s = packed.chunk_seconds(TaskKind::dispatch, Phase::forward, rows)}))
      break;
    Decision decision;
    decision.packing = packing *= 2;
    try {
      const LayerPricer next(pricer.profile(), decided_case(pricer.shape(), decision), pricer.options());
      if (offload_refusal(next.shape())) break;
      if (choice.fits && !choice.fits(next.shape(), schedule.flow)) break;
      results.push_back(tune_degrees({schedule, next, layer.store}, choice));
    } catch (const Unpriced&) {
      break;  // Lina could not measure such groups either
    }
    results.back().decision.packing = packing;
  }
  return results;
}

// Lina's rule only limits the packing; replays choose the best packing within the limit, because the replicas'
// gradients may cost more than the AlltoAlls save. More experts also need more memory, unless they are offloaded as in
// the paper.
LayerResult tune_packed(search::LayerReplay layer, const DegreeChoice& choice) {
  const std::vector<LayerResult> all = tune_packings(layer, choice);
  LayerResult best = all.front();
  for (const LayerResult& result : all)
    if (search::is_better(result.total_s(), best.total_s())) best = result;
  return best;
}

}  // namespace moe

namespace moe::search {
namespace {

/// Calls body(r_f, r_b) for every pair that the schedule, the choice and the rows of `pricer` allow.
template <class Body>
void for_each_pair(const Schedule& schedule, const LayerPricer& pricer, const DegreeChoice& choice, Body body) {
  for (const int forward : tried_degrees(choice.forward, pricer))
    for (const int backward : tried_degrees(choice.backward, pricer))
      if (schedule.degrees == DegreePolicy::apart || forward == backward) body(forward, backward);
}

int64_t rows_of(const LayerCase& shape, int forward, int backward) {
  return padded_rows(decided_case(shape, {forward, backward}));
}

LayerPricer with_rows(const LayerPricer& pricer, int64_t rows) {
  LayerCase padded = pricer.shape();
  padded.row_multiple = rows;
  return {pricer.profile(), padded, pricer.options()};
}

// Returns a lower bound over all degrees: the sum of each phase's own minimum.
double min_of_degrees(LayerReplay layer, const DegreeChoice& choice) {
  const auto least = [&](int fixed, Phase phase) {
    const PhaseBound bound = layer.bound(phase);
    double seconds = std::numeric_limits<double>::max();
    for (const int r : tried_degrees(fixed, layer.pricer)) seconds = std::min(seconds, bound.at(r).seconds);
    return seconds;
  };
  return least(choice.forward, Phase::forward) + least(choice.backward, Phase::backward);
}

// Idea: a pair of degrees determines the padded number of rows. For every such number, in the order of the bounds, the
// best degrees that divide it are found for each phase separately, as without padding. If the best pair would pad to
// fewer rows, it is evaluated with those. It can be better with more rows only if a measured curve falls; then all
// pairs that pad to exactly this number are tried one by one.
class PaddedSearch {
 public:
  explicit PaddedSearch(const LayerReplay& layer) : schedule_(layer.schedule), pricer_(layer.pricer), layer_(layer) {}

  LayerResult run(const DegreeChoice& choice) {
    for (const DegreeChoice& sized : sized_choices(schedule_, pricer_, choice))
      for (const auto& [bound_s, rows] : by_bound(sized)) {
        if (best_ && !is_better(bound_s, best_->total_s())) break;
        try_rows(rows, sized);
      }
    for (const PriceNote& note : notes_) pricer_.note(note);
    best_->exact_order = exact_;
    if (!exact_) best_->gap = std::max(0.0, best_->total_s() / min_s_ - 1);
    return *best_;
  }

 private:
  LayerReplay replay_of(const LayerPricer& padded) const { return {schedule_, padded, layer_.store}; }

  // Returns pairs of a bound in seconds and a number of rows to which some pair of degrees pads, by ascending bound.
  std::vector<std::pair<double, int64_t>> by_bound(const DegreeChoice& sized) const {
    std::set<int64_t> wanted;
    for_each_pair(schedule_, pricer_, sized, [&](int f, int b) { wanted.insert(rows_of(pricer_.shape(), f, b)); });
    std::vector<std::pair<double, int64_t>> order;
    for (const int64_t rows : wanted) {
      const LayerPricer padded = with_rows(pricer_, rows);
      order.emplace_back(min_of_degrees(replay_of(padded), sized), rows);
    }
    std::ranges::sort(order);
    return order;
  }

  void try_rows(int64_t rows, const DegreeChoice& sized) {
    const LayerPricer padded = with_rows(pricer_, rows);
    const LayerResult any = tune_degrees(replay_of(padded), sized);
    min_s_ = std::min(min_s_, any.total_s() / (1 + any.gap));
    exact_ = exact_ && any.exact_order;
    const bool needs_rows = rows_of(pricer_.shape(), any.decision.degree_forward, any.decision.degree_backward) == rows;
    if (needs_rows)
      keep(any, padded);
    else if (!best_ || is_better(any.total_s(), best_->total_s()))
      try_pairs(rows, sized, padded);
  }

  void try_pairs(int64_t rows, const DegreeChoice& sized, const LayerPricer& padded) {
    for_each_pair(schedule_, padded, sized, [&](int f, int b) {
      if (rows_of(pricer_.shape(), f, b) != rows) return;
      if (f > 1 && too_small(schedule_, padded, f, sized.min_chunk_bytes)) return;
      DegreeChoice both = sized;
      both.forward = f;
      both.backward = b;
      keep(tune_degrees(replay_of(padded), both), padded);
    });
  }

  void keep(const LayerResult& result, const LayerPricer& padded) {
    if (best_ && !is_better(result.total_s(), best_->total_s())) return;
    best_ = result;
    notes_ = padded.notes();
  }

  const Schedule& schedule_;
  const LayerPricer& pricer_;
  const LayerReplay& layer_;
  std::optional<LayerResult> best_;
  PriceNotes notes_;  // notes on the best result's prices
  double min_s_ = std::numeric_limits<double>::max();
  bool exact_ = true;
};

}  // namespace

LayerResult tune_padded(LayerReplay layer, const DegreeChoice& choice) { return PaddedSearch(layer).run(choice); }

}  // namespace moe::search
