#include "moe/search/layer_search.h"

#include <algorithm>

#include "moe/search/variants.h"

namespace moe {

LayerResult LayerSearch::tune(const Schedule& schedule, const LayerPricer& pricer, DegreeChoice choice) {
  check_choice(schedule, choice);
  choice = within_rows(choice, pricer);
  if (!schedule.variants.empty()) return tune_variants(*this, schedule, pricer, choice);
  check_shape(schedule, pricer.shape());
  if (schedule.packs_experts) return tune_packed(replay(schedule, pricer), choice);
  return tune_degrees(replay(schedule, pricer), choice);
}

LayerResult LayerSearch::evaluate(const Schedule& schedule, const LayerPricer& pricer, const Decision& decision) {
  LayerResult result;
  if (!schedule.variants.empty()) {
    require<BadInput>(std::ranges::count(schedule.variants, decision.variant) == 1,
                      "schedule {} chooses among others: found no choice", schedule.name);
    result = evaluate(*decision.variant, pricer, decision);
  } else if (const LayerCase decided = decided_case(pricer.shape(), decision); decided != pricer.shape()) {
    check_decision(schedule, decision);
    Decision inside = decision;
    inside.packing = 1;
    result = evaluate(schedule, LayerPricer(pricer.profile(), decided, pricer.options()), inside);
  } else {
    return replay(schedule, pricer).result(decision);
  }
  result.schedule = schedule.name;
  result.decision = decision;
  return result;
}

}  // namespace moe
