#include "moe/layer/verify.h"

#include <algorithm>
#include <cmath>

#include "moe/tensor/element.h"
#include "moe/tensor/host_copy.h"

namespace moe {
namespace {

constexpr double kFp8Flips = 0x1p-5;  // relative error of numbers that round to another FP8 number than the reference's

double norm_of(std::span<const double> whole) {
  double norm = 0;
  for (const double v : whole) norm = std::max(norm, std::abs(v));
  return norm;
}

// Returns the larger number as std::max does, but NaN wins.
double worse(double a, double b) { return std::isnan(a) || a > b ? a : b; }

// Returns the largest difference between a part and its place in the whole.
template <class T>
double difference(const T* part, const std::array<ShardRange, 3>& axes, std::span<const double> whole) {
  const auto& [a, b, c] = axes;
  double worst = 0;
  for (int64_t i = a.first; i < a.first + a.count; ++i)
    for (int64_t j = b.first; j < b.first + b.count; ++j)
      for (int64_t k = c.first; k < c.first + c.count; ++k)
        worst = worse(worst, std::abs(static_cast<double>(*part++) - whole[(i * b.total + j) * c.total + k]));
  return worst;
}

// Returns the ratio of an error of 32 roundings of the terms' size to the tolerance.
double share_of_terms(DType dtype) {
  constexpr double kRoundings = 32;
  switch (dtype) {
    case DType::float64:
      return kRoundings * 0x1p-53 / tolerance_of(dtype);
    case DType::float32:
      return kRoundings * 0x1p-24 / tolerance_of(dtype);
    default:
      return 1;  // 16 roundings, which are the tolerance
  }
}

double tolerance_with(const LayerShape& layer, double exchange_error) {
  // With the precision of float64, no number falls on the other side of the middle between two FP8 numbers.
  const bool flips = in_fp8(layer.ffn) && layer.dtype != DType::float64;
  return tolerance_of(layer.dtype) + (flips ? kFp8Flips : 0) + 32 * exchange_error;
}

class Errors {
 public:
  // `size`: magnitude of the terms whose sums are the tensor's elements.
  void add(const std::string& tensor, TensorView part, const std::array<ShardRange, 3>& axes,
           std::span<const double> whole, double size = 0) {
    require_equal(static_cast<int64_t>(whole.size()), axes[0].total * axes[1].total * axes[2].total,
                  "elements of " + tensor);
    const double norm = std::max(norm_of(whole), share_of_terms(part.dtype()) * size);
    const double error =
        with_element(part.dtype(), [&](auto zero) { return difference(part.as<decltype(zero)>(), axes, whole); }) /
        (norm > 0 ? norm : 1);
    const auto found = std::ranges::find(all_, tensor, &TensorError::tensor);
    if (found == all_.end())
      all_.push_back({tensor, error});
    else
      found->error = worse(error, found->error);
  }
  std::vector<TensorError> all() && { return std::move(all_); }

 private:
  std::vector<TensorError> all_;
};

void check_choices(const MoeLayer& rank, const LayerReference& reference) {
  if (rank.shape().is_dense()) return;
  const std::span<const int32_t> choices = rank.own_choices();
  const ShardRange& tokens = rank.shape().tokens;
  const auto top_k = static_cast<size_t>(rank.routing().choices);
  require_equal(static_cast<size_t>(tokens.total) * top_k, reference.choices.size(), "routed pairs");
  const size_t first = static_cast<size_t>(tokens.first) * top_k;
  for (size_t pair = 0; pair < choices.size(); ++pair)
    require_equal(choices[pair], reference.choices[first + pair],
                  fmt::format("expert {} of token {}", pair % top_k, (first + pair) / top_k));
}

}  // namespace

double tolerance_of(const MoeLayer& layer) { return tolerance_with(layer.shape().shape.layer, layer.exchange_error()); }

double tolerance_of(const LayerShape& layer) {
  const std::unique_ptr<Hook> hook = make_hook(layer.hook);
  return tolerance_with(layer, hook ? hook->relative_error(layer.dtype) : 0);
}

double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return 1e-10;
    case DType::float32:
      return 2e-5;
    case DType::float16:
      return 0x1p-7;
    default:
      return 0x1p-4;
  }
}

std::vector<int32_t> choices_of(std::span<MoeLayer* const> ranks) {
  std::vector<int32_t> all;
  for (const MoeLayer* rank : ranks) {
    const auto own = rank->own_choices();
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

std::vector<TensorError> layer_errors(std::span<MoeLayer* const> ranks, const LayerReference& reference) {
  for (const MoeLayer* rank : ranks) check_choices(*rank, reference);
  Errors errors;
  for (MoeLayer* rank : ranks) {
    const RankShape& s = rank->shape();
    const auto on_host = [&](TensorView t) { return HostCopy(t, rank->memory()); };
    const std::array<ShardRange, 3> tokens{ShardRange{0, 1, 1}, s.held_tokens, {0, s.model_dim(), s.model_dim()}};
    if (rank->ends()) errors.add("output", on_host(rank->output()).view(), tokens, reference.output);
    if (rank->begins())
      errors.add(kInputGradient, on_host(rank->input_gradient()).view(), tokens, reference.input_gradient,
                 reference.sizes.at(kInputGradient));
    for (const Parameter& p : rank->parameters())
      errors.add("gradient of " + p.name, on_host(p.gradient).view(), p.axes, reference.gradients.at(p.name),
                 reference.sizes.at(p.name));
  }
  return std::move(errors).all();
}

std::vector<TensorError> gradient_errors(std::span<const Parameter> parameters, MemorySpace& memory,
                                         const std::map<std::string, std::vector<double>>& gradients,
                                         const TermSizesByTensor& sizes) {
  Errors errors;
  for (const Parameter& p : parameters)
    errors.add("gradient of " + p.name, HostCopy(p.gradient, memory).view(), p.axes, gradients.at(p.name),
               sizes.at(p.name));
  return std::move(errors).all();
}

void require_small(std::span<const TensorError> errors, double tolerance, const LayerShape& layer) {
  std::string wrong;
  for (const TensorError& e : errors)
    if (!(e.error <= tolerance))
      wrong += fmt::format("{}{} is off by {:.2e}", wrong.empty() ? "" : ", ", e.tensor, e.error);
  require<WrongResult>(wrong.empty(), "{} of its largest value, expected at most {:.0e}: {}", wrong, tolerance,
                       describe(layer));
}

std::vector<TensorError> verify_layer(std::span<MoeLayer* const> ranks, const LayerReference& reference,
                                      double tolerance) {
  const MoeLayer& any = *ranks.front();
  std::vector<TensorError> errors = layer_errors(ranks, reference);
  require_small(errors, tolerance == 0 ? tolerance_of(any) : tolerance, any.shape().shape.layer);
  return errors;
}

std::vector<TensorError> verify_layer(std::span<MoeLayer* const> ranks, double tolerance) {
  const MoeLayer& first = *ranks.front();
  const double tie = tolerance_of(first.shape().dtype());
  const std::vector<int32_t> choices = choices_of(ranks);
  return verify_layer(ranks, reference_layer(first.shape().shape, first.seed(), {choices, tie, first.routing().preset}),
                      tolerance);
}

}  // namespace moe
