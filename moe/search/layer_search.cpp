#include "moe/search/layer_search.h"

#include <algorithm>

#include "moe/search/variants.h"

namespace moe {
namespace {

// Says where a larger degree than any that was tried may be better.
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
  bool open = search::better(result.forwards * forward_s + backward_s, result.total_s());
  if (policy == DegreePolicy::apart)
    open = search::better(forward_s, result.forward_s) || search::better(backward_s, result.backward_s);
  if (policy == DegreePolicy::by_size) open = choice.forward == 0 && result.decision.degree_forward == limit;
  if (open)
    layer.pricer.note(fmt::format("degree limit: {} is the largest that is tried, of up to {} rows", limit, rows));
}

// Adds the forward that a backward begins with to it: nothing of either runs beside the other.
void add_forward_again(LayerResult& result) {
  for (; result.forwards > 1; --result.forwards) {
    result.backward_s += result.forward_s;
    result.bound.backward_s += result.bound.forward_s;
    result.degree_bound.backward_s += result.degree_bound.forward_s;
  }
}

}  // namespace

LayerResult LayerSearch::tune(const Schedule& schedule, const LayerPricer& pricer, DegreeChoice choice) {
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
                      "schedule {} chooses among others: found no choice", schedule.name);
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

}  // namespace moe
