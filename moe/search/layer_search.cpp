#include "moe/search/layer_search.h"

#include <algorithm>

#include "moe/search/variants.h"

namespace moe {
namespace {

// Says where a larger degree than any that was tried may be better.
void note_cap(const LayerPricer& pricer, const DegreeChoice& choice, const Decision& decision) {
  const bool forward = choice.forward == 0 && decision.degree_forward == kMaxDegree;
  const bool backward = choice.backward == 0 && decision.degree_backward == kMaxDegree;
  const int64_t rows = capacity_rows(pricer.shape());
  if ((forward || backward) && kMaxDegree < rows)
    pricer.note(fmt::format("degree at the cap: {} is the largest that is tried, of up to {} rows", kMaxDegree, rows));
}

}  // namespace

LayerResult LayerSearch::tune(const Schedule& schedule, const LayerPricer& pricer, DegreeChoice choice) {
  check_choice(schedule, choice);
  choice = within_rows(choice, pricer);
  if (!schedule.variants.empty()) return tune_variants(*this, schedule, pricer, choice);
  check_shape(schedule, pricer.shape());
  LayerResult result = schedule.packs_experts ? tune_packed(replay(schedule, pricer), choice)
                                              : tune_degrees(replay(schedule, pricer), choice);
  note_cap(pricer, choice, result.decision);
  return result;
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
