#include "moe/layer/experts/mixtral.h"

#include <array>

#include "moe/layer/cpu/math.h"
#include "moe/layer/experts/feed_forward.h"

namespace moe {

std::unique_ptr<Expert> make_mixtral_expert(const ExpertSetup& setup) {
  static constexpr std::array kInputs{kW1, kW3};
  return make_feed_forward(setup,
                           {kInputs, [](auto before, TensorView after) { swiglu(before[0], before[1], after); },
                            [](auto before, auto d) { swiglu_backward(before[0], before[1], d[0], d[0], d[1]); }});
}

}  // namespace moe
