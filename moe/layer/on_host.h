#pragma once
// A tensor's numbers where the host can read and write them: the tensor itself, or a copy of what a device holds.
#include "moe/layer/tensor.h"

namespace moe {

class OnHost {
 public:
  /// Reads a device's tensor after everything that the device was given before. Blocking.
  OnHost(TensorView t, MemorySpace& memory) : memory_(memory), there_(t), here_(t) {
    if (t.device() == DeviceKind::cpu) return;
    copy_ = Tensor({t.elements()}, t.dtype());
    here_ = t.moved_to(copy_.view().data(), DeviceKind::cpu);
    memory.to_host(t.data(), here_.data(), t.bytes());
  }
  TensorView view() const { return here_; }
  /// What was written here goes to the device. Blocking.
  void send() const {
    if (there_.device() != DeviceKind::cpu) memory_.from_host(here_.data(), there_.data(), there_.bytes());
  }

 private:
  MemorySpace& memory_;
  TensorView there_, here_;
  Tensor copy_;
};

}  // namespace moe
