#include "moe/layer/norm.h"

#include <algorithm>
#include <cmath>

#include "moe/layer/cpu/row_kernels.h"
#include "moe/layer/element.h"
#include "moe/layer/tensor.h"

namespace moe {
namespace {

template <class T>
class Normalizer final : public RowNorm {
 public:
  Normalizer(const RankShape& shape, std::string_view name, const LayerSeed& seed)
      : name_(name), width_(shape.model_dim()), centred_(shape.shape.layer.norm == Norm::layernorm) {
    for (Tensor* t : {&gain_, &d_gain_}) *t = Tensor({1, 1, width_}, shape.dtype());
    fill_weight(gain(1), 4, seed);  // about 1, each another
    std::for_each_n(gain_.as<T>(), width_, [](T& g) { g += 1; });
  }

  void forward(TensorView x, TensorView out) override {
    const T *in = x.as<T>(), *g = gain_.as<T>();
    T* y = out.as<T>();
    for (int64_t i = 0; i < x.size(0); ++i, in += width_, y += width_) {
      const auto [mean, scale] = moments(in);
      for (int64_t j = 0; j < width_; ++j) y[j] = g[j] * ((in[j] - mean) * scale);
    }
  }

  // With h = (x - mean) scale and u = gain d_out: d_x = scale (u - h mean(u h) - mean(u)), the last term of LayerNorm.
  void backward(TensorView x, TensorView d) override {
    const T *in = x.as<T>(), *g = gain_.as<T>();
    T *dg = d_gain_.as<T>(), *row = d.as<T>();
    std::fill_n(dg, width_, T(0));
    for (int64_t i = 0; i < x.size(0); ++i, in += width_, row += width_) {
      const auto [mean, scale] = moments(in);
      const auto h = [&, mean = mean, scale = scale](int64_t j) { return (in[j] - mean) * scale; };
      const T along = mean_of([&](int64_t j) { return g[j] * row[j] * h(j); });
      const T common = centred_ ? mean_of([&](int64_t j) { return g[j] * row[j]; }) : T(0);
      for (int64_t j = 0; j < width_; ++j) dg[j] += row[j] * h(j);
      for (int64_t j = 0; j < width_; ++j) row[j] = scale * (g[j] * row[j] - h(j) * along - common);
    }
  }

  Parameter gain(int copies) override {
    const Share one{0, 1, 1};
    return {name_, {one, one, {0, width_, width_}}, gain_, d_gain_, SummedOver::stage, copies};
  }

 private:
  struct Moments {
    T mean, scale;
  };
  template <class Term>
  T mean_of(Term term) const {
    return sum_of<T>(width_, term) / static_cast<T>(width_);
  }

  Moments moments(const T* x) const {
    const T mean = centred_ ? mean_of([&](int64_t j) { return x[j]; }) : T(0);
    const T variance = mean_of([&](int64_t j) { return (x[j] - mean) * (x[j] - mean); });
    return {mean, T(1) / std::sqrt(variance + static_cast<T>(kEpsilon))};
  }

  std::string name_;
  int64_t width_;
  bool centred_;
  Tensor gain_, d_gain_;
};

}  // namespace

std::unique_ptr<RowNorm> make_norm(const RankShape& shape, std::string_view gain_name, const LayerSeed& seed) {
  if (shape.shape.layer.norm == Norm::none) return nullptr;
  return with_element(shape.dtype(), [&](auto zero) -> std::unique_ptr<RowNorm> {
    return std::make_unique<Normalizer<decltype(zero)>>(shape, gain_name, seed);
  });
}

}  // namespace moe
