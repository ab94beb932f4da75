// What a pricer makes of a whole plan, and says of its rows.
#include "moe/cost/pricer.h"

namespace moe {

std::string weak_rows(const std::set<std::string>& notes) {
  std::string text;
  for (const std::string& note : notes)
    if (note.starts_with(kWeakRow)) text += (text.empty() ? "" : "; ") + note.substr(kWeakRow.size());
  return text;
}

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
