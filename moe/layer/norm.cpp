#include "moe/layer/norm.h"

#include <algorithm>
#include <optional>

#include "moe/tensor/element.h"
#include "moe/tensor/host_copy.h"
#include "moe/tensor/tensor.h"

namespace moe {
namespace {

class Normalizer final : public RowNorm {
 public:
  Normalizer(const PartSetup& setup, std::string_view name)
      : math_(setup.math),
        name_(name),
        width_(setup.rank.model_dim()),
        centred_(setup.rank.shape.layer.norm != Norm::rmsnorm),
        gain_(setup.weight(name_, {1, 1, width_}, setup.rank.dtype())),
        d_gain_(setup.weight(gradient_name(name_), {1, 1, width_}, setup.rank.dtype())) {
    fill_gain(parameters(1).front(), setup.seed, math_.memory());
    if (!centred_ || !setup.rank.shape.layer.bias) return;
    const std::string bias = name_ + std::string(kNormBias);
    bias_ = setup.weight(bias, {1, 1, width_}, setup.rank.dtype());
    d_bias_ = setup.weight(gradient_name(bias), {1, 1, width_}, setup.rank.dtype());
    biases_.emplace(math_, setup.rank.dtype());
    fill_weight(parameters(1).back(), width_, setup.seed, math_.memory());
  }

  void forward(TensorView x, TensorView out) override {
    math_.norm(input(x), out);
    if (biases_) biases_->add(bias_, matrix(out));
  }
  void backward(TensorView x, TensorView d, Into into) override {
    if (biases_) biases_->gradient(matrix(d), d_bias_, into);
    if (into == Into::overwrite) return math_.norm_backward(input(x), d, d_gain_);
    if (part_.view().rank() == 0) part_ = Tensor({1, 1, width_}, d_gain_.view().dtype(), math_.memory());
    math_.norm_backward(input(x), d, part_);
    math_.add(part_, d_gain_);
  }

  std::vector<Parameter> parameters(int copies) override {
    const std::array<ShardRange, 3> axes{ShardRange{0, 1, 1}, {0, 1, 1}, {0, width_, width_}};
    std::vector<Parameter> all{{name_, axes, gain_, d_gain_, SummedOver::stage, copies, 1}};
    if (biases_) all.push_back({name_ + std::string(kNormBias), axes, bias_, d_bias_, SummedOver::stage, copies, 1});
    return all;
  }

 private:
  NormInput input(TensorView x) const { return {x, gain_, centred_, kEpsilon}; }

  Math& math_;
  std::string name_;
  int64_t width_;
  bool centred_;
  Weight gain_, d_gain_;
  Tensor part_;  // the gain's gradient of this pass, if it is added to another
  Weight bias_, d_bias_;
  std::optional<RowBias> biases_;  // none if the norm has no bias
};

}  // namespace

std::string gradient_name(std::string_view weight) { return std::string(weight) + "'s gradient"; }

void fill_gain(const Parameter& gain, const LayerSeed& seed, MemorySpace& memory) {
  fill_weight(gain, 4, seed, memory);
  const HostCopy host(gain.value, memory);
  with_element(host.view().dtype(), [&](auto zero) {
    for (int64_t j = 0; j < gain.value.elements(); ++j) host.view().as<decltype(zero)>()[j] += 1;
  });
  host.send();
}

std::unique_ptr<RowNorm> make_norm(const PartSetup& setup, std::string_view gain_name) {
  if (setup.rank.shape.layer.norm == Norm::none) return nullptr;
  return std::make_unique<Normalizer>(setup, gain_name);
}

namespace {

Matrix row(TensorView elements) { return matrix(elements.part(0, {1, elements.elements()})); }

}  // namespace

void RowBias::add(TensorView bias, const Matrix& to, const Batch& batch) {
  if (to.rows > 0) math_.gemm(ones(to.rows), row(bias), to, Into::add, {batch.count, 0, batch.b, batch.out});
}

void RowBias::gradient(const Matrix& d, TensorView d_bias, Into into, const Batch& batch) {
  math_.gemm(transpose(ones(d.rows)), d, row(d_bias), into, {batch.count, 0, batch.b, batch.out});
}

Matrix RowBias::ones(int64_t rows) {
  if (ones_.view().rank() == 0 || ones_.view().size(0) < rows) {
    ones_ = Tensor({rows, 1}, dtype_, math_.memory());
    const HostCopy host(ones_, math_.memory());
    with_element(host.view().dtype(), [&](auto zero) {
      using T = decltype(zero);
      std::fill_n(host.view().as<T>(), rows, T(1));
    });
    host.send();
  }
  return matrix(ones_.view().part(0, {rows, 1}));
}

}  // namespace moe
