#include "moe/plan/step.h"

#include "moe/base/enum_array.h"
#include "moe/base/registry.h"
#include "moe/shape/volumes.h"

namespace moe {
namespace {

constexpr EnumArray<OptimizerKind, Named<OptimizerKind>, 2> kOptimizers{
    {{{"sgd", OptimizerKind::sgd}, {"adamw", OptimizerKind::adamw}}}};
static_assert(is_in_enum_order(kOptimizers, &Named<OptimizerKind>::value));

}  // namespace

std::string_view name_of(OptimizerKind kind) { return kOptimizers[kind].name; }

OptimizerKind optimizer_from(std::string_view name, std::string_view where) {
  return find_named(kOptimizers, name, where).value;
}

StepWeights step_weights(const LayerCase& c) {
  const int64_t width = bytes_of(c.layer.dtype);
  return {gradient_bytes(c) / width, expert_gradient_bytes(c) / width,
          gate_parameters(c) + 2 * norm_parameters(c.layer) + latent_parameters(c.layer)};
}

StepWeights embedding_weights(const LayerCase& c, int64_t vocabulary) {
  const int64_t places = c.layer.rope_theta == 0 ? c.layer.seq : 0;
  const int64_t rows = padded_share(vocabulary, c.parallel.mp) + padded_share(places, c.parallel.mp);
  return {.dense = rows * c.layer.model_dim, .replicated = is_post_norm(c.layer.norm) ? norm_parameters(c.layer) : 0};
}

StepWeights head_weights(const LayerCase& c, int64_t vocabulary, bool tied) {
  const int64_t own = tied && c.parallel.pp == 1 ? 0 : padded_share(vocabulary, c.parallel.mp) * c.layer.model_dim;
  return {.dense = own, .replicated = is_post_norm(c.layer.norm) ? 0 : norm_parameters(c.layer)};
}

EndWeights end_weights(const LayerCase& c, int64_t vocabulary, bool tied) {
  if (vocabulary == 0) return {};
  return {embedding_weights(c, vocabulary), head_weights(c, vocabulary, tied)};
}

int64_t stage_gradient_bytes(const LayerCase& c) {
  return step_weights(c).replicated * bytes_of(accumulation_type(c.layer.dtype));
}

int64_t end_gradient_bytes(const LayerCase& c, const StepWeights& end) { return end.dense * bytes_of(c.layer.dtype); }

int64_t end_norm_bytes(const LayerCase& c, const StepWeights& end) { return end.replicated * bytes_of(c.layer.dtype); }

double optimizer_bytes(const LayerCase& c, const StepWeights& w, OptimizerKind optimizer) {
  const bool shares = c.parallel.zero > 0;
  const double dp = shares ? c.parallel.replicas() : 1, edp = shares ? c.parallel.edp : 1;
  const double elements = static_cast<double>(w.dense + w.replicated) / dp + static_cast<double>(w.experts) / edp;
  const DType weight = c.layer.dtype, state = accumulation_type(weight);
  const double states = optimizer == OptimizerKind::adamw ? 2 : 1;
  const double own = weight == state ? 0 : bytes_of(weight);  // of the 16-bit weight, beside its master
  const double moved = bytes_of(weight) + 2 * (states + 1) * bytes_of(state) + own;
  return elements * moved / 2;
}

}  // namespace moe
