#include "tuner/answer/rates.h"

#include "moe/base/units.h"
#include "moe/plan/volumes.h"

namespace moe::tuner {

std::optional<StepRates> rates_of(const verbs::ChosenModel& chosen, const Profile& profile, double step_s) {
  if (chosen.name.empty()) return std::nullopt;
  const ModelShape& model = chosen.model;
  const LayerShape& layer = model.shape.layer;
  const ParallelShape& p = model.shape.parallel;
  const double rank_s = step_s * p.ranks();
  const double flops = step_flops(model.shape, {model.layers, model.micro_batches, chosen.vocabulary, model.dense});
  StepRates rates{static_cast<double>(layer.batch * layer.seq) * p.dp * model.micro_batches / rank_s, flops / rank_s};
  if (profile.gpu && bytes_of(layer.dtype) == 2)
    rates.utilisation = rates.flops_per_s / profile.gpu->tensor_flops_per_s;
  return rates;
}

}  // namespace moe::tuner
