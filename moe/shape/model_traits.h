#pragma once
// Properties of a published model that plans do not use. Records and model files keep them for exports.
#include <string>
#include <tuple>

#include "moe/base/config.h"

namespace moe {

struct ModelTraits {
  bool qk_norm = false;
  bool qkv_bias = false, output_bias = false, expert_bias = false;
  bool attention_gate = false, attention_sinks = false;
  bool shared_expert_gate = false;
  bool selection_bias = false;       // added to scores only to choose experts
  bool unnormalized_scores = false;  // a sigmoid gate's weights are not divided by their sum
  double routed_scale = 1;           // factor of the routed experts' weights
  double balance_loss = 0;         // coefficient of the load-balancing loss that the model is trained with; 0: unknown
  bool balance_by_sample = false;  // the load-balancing loss is computed for each sample, not for the batch
  double rotary_share = 1;         // part of a head that has rotary positions
  double swiglu_limit = 0;         // limit at which gpt-oss clamps its activation; 0: no limit
  int64_t mtp_modules = 0;         // modules that predict further tokens
  std::string other_mixers = {};   // mixers that plans replace by attention: "gated DeltaNet in 36 of 48 layers"
  std::string rope_scaling = {};   // how rotary positions are stretched: "yarn, factor 40"; empty: they are not
  bool operator==(const ModelTraits&) const = default;
};

template <class Value>
struct ModelTrait {
  std::string_view key;  // key in model files and records, which omit a trait with its default value
  Value ModelTraits::*member;
  Limits limits = {};
};

inline constexpr Limits kShareLimits{.max = 1, .above = 0};
inline constexpr Limits kScaleLimits{.max = 1e6, .above = 0};
inline constexpr Limits kCountLimits{.min = 0, .max = 1e12};

inline constexpr std::tuple kModelTraits{ModelTrait<bool>{"qk_norm", &ModelTraits::qk_norm},
                                         ModelTrait<bool>{"qkv_bias", &ModelTraits::qkv_bias},
                                         ModelTrait<bool>{"output_bias", &ModelTraits::output_bias},
                                         ModelTrait<bool>{"expert_bias", &ModelTraits::expert_bias},
                                         ModelTrait<bool>{"attention_gate", &ModelTraits::attention_gate},
                                         ModelTrait<bool>{"attention_sinks", &ModelTraits::attention_sinks},
                                         ModelTrait<bool>{"shared_expert_gate", &ModelTraits::shared_expert_gate},
                                         ModelTrait<bool>{"selection_bias", &ModelTraits::selection_bias},
                                         ModelTrait<bool>{"unnormalized_scores", &ModelTraits::unnormalized_scores},
                                         ModelTrait<double>{"routed_scale", &ModelTraits::routed_scale, kScaleLimits},
                                         ModelTrait<double>{"balance_loss", &ModelTraits::balance_loss, kScaleLimits},
                                         ModelTrait<bool>{"balance_by_sample", &ModelTraits::balance_by_sample},
                                         ModelTrait<double>{"rotary_share", &ModelTraits::rotary_share, kShareLimits},
                                         ModelTrait<double>{"swiglu_limit", &ModelTraits::swiglu_limit, kScaleLimits},
                                         ModelTrait<int64_t>{"mtp_modules", &ModelTraits::mtp_modules, kCountLimits},
                                         ModelTrait<std::string>{"other_mixers", &ModelTraits::other_mixers},
                                         ModelTrait<std::string>{"rope_scaling", &ModelTraits::rope_scaling}};

/// Calls visit(trait) for each row, in order.
template <class Visit>
constexpr void for_each_model_trait(Visit visit) {
  std::apply([&](const auto&... traits) { (visit(traits), ...); }, kModelTraits);
}

}  // namespace moe
