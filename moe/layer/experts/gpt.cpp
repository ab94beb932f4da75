#include "moe/layer/experts/gpt.h"

#include <array>

#include "moe/layer/experts/feed_forward.h"

namespace moe {

std::unique_ptr<Expert> make_gpt_expert(const PartSetup& setup) {
  static constexpr std::array kInputs{kW1};
  return make_feed_forward(setup,
                           {kInputs, [](Math& math, auto before, TensorView after) { math.gelu(before[0], after); },
                            [](Math& math, auto before, auto d) { math.gelu_backward(before[0], d[0], d[0]); }});
}

}  // namespace moe
