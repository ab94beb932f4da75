// Prices a whole plan.
#include "moe/cost/step_prices.h"

namespace moe {
namespace {

// Returns the seconds of each class. `dense`: prices the plan's dense layers; null: there are none.
std::vector<double> priced(const LayerPricer& pricer, const LayerPricer* dense, const Plan& plan) {
  std::vector<double> seconds;
  pricer.price(*plan.structure, plan.slices, seconds);
  for (size_t i = 0; i < seconds.size(); ++i) {
    const WorkClass& wc = plan.structure->classes[i];
    const LayerPricer& own = plan.dense.has(wc.layer) ? *dense : pricer;
    if (is_end(wc.kind))
      seconds[i] = pricer.end_seconds(wc.kind, wc.phase, plan.works[i]);
    else if (wc.phase == Phase::step)
      seconds[i] = cost::step_seconds(own, wc.kind, plan.works[i]);
    else if (&own != &pricer && !sends_gradients(wc.kind))
      seconds[i] = own.dense_seconds(wc.kind, wc.phase, plan.structure->flow);
  }
  return seconds;
}

std::vector<double> priced(const LayerPricer& pricer, const Plan& plan) {
  if (plan.dense.none(plan.layers)) return priced(pricer, nullptr, plan);
  const LayerPricer& dense = pricer.dense(plan.dense.hidden);
  std::vector<double> seconds = priced(pricer, &dense, plan);
  for (const std::string& note : dense.notes()) pricer.note(note);
  return seconds;
}

}  // namespace

std::vector<double> price(const LayerPricer& pricer, const Plan& plan) {
  if (plan.shape == pricer.shape()) return priced(pricer, plan);
  return priced(LayerPricer(pricer.profile(), plan.shape, pricer.options()), plan);  // of packed experts
}

}  // namespace moe
