#include "moe/layer/norm.h"

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
        centred_(setup.rank.shape.layer.norm == Norm::layernorm),
        gain_(setup.weight(name_, {1, 1, width_}, setup.rank.dtype())),
        d_gain_(setup.weight(gradient_name(name_), {1, 1, width_}, setup.rank.dtype())) {
    fill_weight(gain(1), 4, setup.seed, math_.memory());  // about 1, each another
    const HostCopy host(gain_, math_.memory());
    with_element(host.view().dtype(), [&](auto zero) {
      for (int64_t j = 0; j < width_; ++j) host.view().as<decltype(zero)>()[j] += 1;
    });
    host.send();
  }

  void forward(TensorView x, TensorView out) override { math_.norm(input(x), out); }
  void backward(TensorView x, TensorView d, Into into) override {
    if (into == Into::overwrite) return math_.norm_backward(input(x), d, d_gain_);
    if (part_.view().rank() == 0) part_ = Tensor({1, 1, width_}, d_gain_.view().dtype(), math_.memory());
    math_.norm_backward(input(x), d, part_);
    math_.add(part_, d_gain_);
  }

  Parameter gain(int copies) override {
    const ShardRange one{0, 1, 1};
    return {name_, {one, one, {0, width_, width_}}, gain_, d_gain_, SummedOver::stage, copies};
  }

 private:
  NormInput input(TensorView x) {
    const bool on_device = x.device() != DeviceKind::cpu;
    if (on_device && (moments_.view().rank() == 0 || moments_.view().size(0) < x.size(0)))
      moments_ = Tensor({x.size(0), 2}, sums_type(x.dtype()), math_.memory());
    return {x, gain_, centred_, kEpsilon, moments_};
  }

  Math& math_;
  std::string name_;
  int64_t width_;
  bool centred_;
  Weight gain_, d_gain_;
  Tensor part_;  // of the gain's gradient, where it is added to
  Tensor moments_;
};

}  // namespace

std::string gradient_name(std::string_view weight) { return std::string(weight) + "'s gradient"; }

std::unique_ptr<RowNorm> make_norm(const PartSetup& setup, std::string_view gain_name) {
  if (setup.rank.shape.layer.norm == Norm::none) return nullptr;
  return std::make_unique<Normalizer>(setup, gain_name);
}

}  // namespace moe
