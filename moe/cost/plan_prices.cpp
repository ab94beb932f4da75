// What a pricer makes of a whole plan.
#include "moe/cost/step_prices.h"

namespace moe {

std::vector<double> price(const LayerPricer& pricer, const Plan& plan) {
  std::vector<double> seconds;
  const auto by_works = [&](const LayerPricer& of_plan) {
    for (size_t i = 0; i < seconds.size(); ++i) {
      const WorkClass& wc = plan.structure->classes[i];
      if (is_end(wc.kind)) seconds[i] = of_plan.end_seconds(plan.works[i]);
      if (wc.phase == Phase::step) seconds[i] = step_seconds(of_plan, wc.kind, plan.works[i]);
    }
    return seconds;
  };
  if (plan.shape == pricer.shape()) {
    pricer.price(*plan.structure, plan.slices, seconds);
    return by_works(pricer);
  }
  const LayerPricer packed(pricer.profile(), plan.shape, pricer.options());  // of experts
  packed.price(*plan.structure, plan.slices, seconds);
  return by_works(packed);
}

}  // namespace moe
