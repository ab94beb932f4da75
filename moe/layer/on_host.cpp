#include "moe/layer/on_host.h"

#include "moe/layer/cpu/math.h"

namespace moe {

OnHost::OnHost(TensorView t, MemorySpace& memory) : memory_(memory), there_(t), stored_(t) {
  if (t.device() != DeviceKind::cpu) {
    copy_ = Tensor({t.elements()}, t.dtype());
    stored_ = t.moved_to(copy_.view().data(), DeviceKind::cpu, t.dtype());
    memory.to_host(t.data(), stored_.data(), t.bytes());
  }
  here_ = stored_;
  if (t.dtype() == sums_type(t.dtype())) return;
  wide_ = Tensor({t.elements()}, sums_type(t.dtype()));
  here_ = t.moved_to(wide_.view().data(), DeviceKind::cpu, wide_.view().dtype());
  convert(stored_, here_);
}

void OnHost::send() const {
  if (here_.data() != stored_.data()) convert(here_, stored_);
  if (there_.device() != DeviceKind::cpu) memory_.from_host(stored_.data(), there_.data(), there_.bytes());
}

}  // namespace moe
