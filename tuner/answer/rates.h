#pragma once
// What a model's step comes to on one rank: the numbers by which trainings are compared.
#include <optional>

#include "moe/cost/profile.h"
#include "verbs/chosen_model.h"

namespace moe::tuner {

struct StepRates {
  double tokens_per_s = 0;                 // of a rank
  double flops_per_s = 0;                  // of a rank, of the FLOPs that the model needs (moe/plan/volumes.h)
  std::optional<double> utilisation = {};  // of the rank's peak; none: the profile says no peak of the model's type
};

/// Returns the rates of a step of so many seconds; none for layers that are no model's.
std::optional<StepRates> rates_of(const verbs::ChosenModel& chosen, const Profile& profile, double step_s);

/// Sets "tokens_per_s_per_rank", "model_flops_per_s_per_rank" and, if known, "model_flops_utilisation" by set(key,
/// value).
void set_rates(const std::optional<StepRates>& rates, const auto& set) {
  if (!rates) return;
  set("tokens_per_s_per_rank", rates->tokens_per_s);
  set("model_flops_per_s_per_rank", rates->flops_per_s);
  if (rates->utilisation) set("model_flops_utilisation", *rates->utilisation);
}

}  // namespace moe::tuner
