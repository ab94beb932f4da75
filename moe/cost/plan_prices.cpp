// What a pricer makes of a whole plan.
#include "moe/cost/pricer.h"

namespace moe {

std::vector<double> price(const LayerPricer& pricer, const Plan& plan) {
  std::vector<double> seconds;
  if (plan.shape == pricer.shape())
    pricer.price(*plan.structure, plan.slices, seconds);
  else  // with experts packed
    LayerPricer(pricer.profile(), plan.shape, pricer.options()).price(*plan.structure, plan.slices, seconds);
  for (size_t i = 0; i < seconds.size(); ++i)
    if (is_end(plan.structure->classes[i].kind)) seconds[i] = pricer.end_seconds(plan.works[i]);
  return seconds;
}

}  // namespace moe
