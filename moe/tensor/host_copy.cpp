#include "moe/tensor/host_copy.h"

#include "moe/tensor/cpu/math.h"

namespace moe {

HostCopy::HostCopy(TensorView t, MemorySpace& memory, Widen widen) : memory_(memory), device_view_(t), stored_(t) {
  if (t.device() != DeviceKind::cpu) {
    copy_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(t.bytes()));
    stored_ = t.moved_to(copy_.get(), DeviceKind::cpu, t.dtype());
    memory.to_host(t.data(), stored_.data(), t.bytes());
  }
  host_view_ = stored_;
  const DType wide = accumulation_type(t.dtype());
  if (widen == Widen::no || t.dtype() == wide) return;
  wide_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(t.elements() * bytes_of(wide)));
  host_view_ = t.moved_to(wide_.get(), DeviceKind::cpu, wide);
  convert(stored_, host_view_);
}

void HostCopy::send() const {
  if (host_view_.data() != stored_.data()) convert(host_view_, stored_);
  if (device_view_.device() != DeviceKind::cpu)
    memory_.from_host(stored_.data(), device_view_.data(), device_view_.bytes());
}

}  // namespace moe
