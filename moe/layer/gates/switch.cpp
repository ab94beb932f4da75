#include "moe/layer/gates/switch.h"

#include "moe/layer/gates/gate_parts.h"
#include "moe/tensor/element.h"

namespace moe {
namespace {

template <class T>
class SwitchGate final : public SoftmaxGate<T> {
 public:
  using SoftmaxGate<T>::SoftmaxGate;

 private:
  void choose(const T* logits, const SoftmaxScores<T>&, Routing& routing) override {
    choose_top_k(logits, routing.experts, routing);
  }
};

}  // namespace

std::unique_ptr<Gate> make_switch_gate(const PartSetup& setup) {
  return make_for<Gate, SwitchGate>(setup.rank.dtype(), setup);
}

}  // namespace moe
