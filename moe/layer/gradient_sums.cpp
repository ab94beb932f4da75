#include "moe/layer/gradient_sums.h"

namespace moe {

void sum_gradient(const Parameter& p, Communicator& comm, bool sums, Math& math, CommCall call) {
  if (sums && comm.size() > 1) comm.allreduce(p.gradient.data(), p.gradient.elements(), p.gradient.dtype(), call);
  if (p.copies == 1) return;
  call.stream.launch([&math, gradient = p.gradient, by = p.copies](void* native) {
    math.use(native);
    math.scale(gradient, 1.0 / by);
  });
}

}  // namespace moe
