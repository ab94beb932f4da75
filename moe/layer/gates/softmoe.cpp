#include "moe/layer/gates/softmoe.h"

#include <algorithm>
#include <cmath>

#include "moe/layer/gates/gate_parts.h"
#include "moe/shape/volumes.h"
#include "moe/tensor/element.h"

namespace moe {
namespace {

template <class T>
class SoftMoeGate final : public Gate {
 public:
  explicit SoftMoeGate(const PartSetup& setup)
      : rows_(setup.rank.experts.total * capacity_rows(setup.rank.shape)),
        logits_(setup, rows_),
        max_(static_cast<size_t>(rows_)),
        sum_(max_) {
    fill_weight(logits_.weight(kGateWeight), setup.rank.model_dim(), setup.seed);
  }

  void forward(TensorView hidden, Routing& routing) override {
    logits_.forward(hidden);
    const T* logits = logits_.products().as<T>();
    for (int64_t t = 0; t < routing.tokens; ++t) softmax(logits + t * rows_, routing.weight.as<T>() + t * rows_);
    const int64_t group = routing.group_tokens * rows_;
    for (int64_t g = 0; g < routing.groups(); ++g)
      softmax_of_columns(logits + g * group, routing.fill.as<T>() + g * group, routing.group_tokens);
    for (size_t pair = 0; pair < routing.expert.size(); ++pair) {
      const auto slot = static_cast<int64_t>(pair) % rows_;
      routing.expert[pair] = static_cast<int32_t>(slot / routing.rows);
      routing.row[pair] = static_cast<int32_t>(slot % routing.rows);
    }
    std::ranges::fill(routing.filled, routing.rows);
  }

  void backward(const GateBackward& pass) override {
    const Routing& r = pass.routing;
    T* d = logits_.d_products().as<T>();
    const T *weight = r.weight.as<T>(), *dw = pass.d_weight.as<T>();
    for (int64_t t = 0; t < r.tokens; ++t) {
      const int64_t at = t * rows_;
      T mean = 0;
      for (int64_t s = at; s < at + rows_; ++s) mean += weight[s] * dw[s];
      for (int64_t s = at; s < at + rows_; ++s) d[s] = weight[s] * (dw[s] - mean);
    }
    for (int64_t first = 0; first < r.tokens; first += r.group_tokens) add_columns(pass, first, d);
    logits_.backward(pass);
  }

  std::vector<Parameter> parameters() override { return {logits_.weight(kGateWeight)}; }

 private:
  void softmax(const T* logits, T* out) const {
    const T most = *std::max_element(logits, logits + rows_);
    T sum = 0;
    for (int64_t s = 0; s < rows_; ++s) sum += out[s] = std::exp(logits[s] - most);
    for (int64_t s = 0; s < rows_; ++s) out[s] /= sum;
  }

  void softmax_of_columns(const T* logits, T* out, int64_t tokens) {
    std::copy_n(logits, rows_, max_.begin());
    const auto each = [&](auto body) {
      for (int64_t i = 0; i < tokens * rows_; i += rows_)
        for (int64_t s = 0; s < rows_; ++s) body(i + s, static_cast<size_t>(s));
    };
    each([&](int64_t i, size_t s) { max_[s] = std::max(max_[s], logits[i]); });
    std::ranges::fill(sum_, T(0));
    each([&](int64_t i, size_t s) { sum_[s] += out[i] = std::exp(logits[i] - max_[s]); });
    each([&](int64_t i, size_t s) { out[i] /= sum_[s]; });
  }

  // Adds the gradients that come through `fill`, for the group of tokens that begins with token `first`.
  void add_columns(const GateBackward& pass, int64_t first, T* d) {
    const T *fill = pass.routing.fill.as<T>(), *df = pass.d_fill.as<T>();
    const auto each = [&](auto body) {
      for (int64_t t = first; t < first + pass.routing.group_tokens; ++t)
        for (int64_t s = 0; s < rows_; ++s) body(t * rows_ + s, static_cast<size_t>(s));
    };
    std::ranges::fill(sum_, T(0));
    each([&](int64_t i, size_t s) { sum_[s] += fill[i] * df[i]; });
    each([&](int64_t i, size_t s) { d[i] += fill[i] * (df[i] - sum_[s]); });
  }

  int64_t rows_;  // rows of all experts
  GateProjection logits_;
  std::vector<T> max_, sum_;  // largest logit and sum of exponentials of each row, over a group's tokens
};

}  // namespace

std::unique_ptr<Gate> make_softmoe_gate(const PartSetup& setup) {
  return make_for<Gate, SoftMoeGate>(setup.rank.dtype(), setup);
}

}  // namespace moe
