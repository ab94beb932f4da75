#include "moe/layer/experts/mixtral.h"

#include <array>

#include "moe/layer/experts/feed_forward.h"

namespace moe {
namespace {

constexpr std::array kInputs{kW1, kW3};

std::unique_ptr<Expert> make(const PartSetup& setup, bool fp8) {
  return make_feed_forward(
      setup,
      {kInputs, [](Math& math, auto before, TensorView after) { math.swiglu(before[0], before[1], after); },
       [](Math& math, auto before, auto d) { math.swiglu_backward(before[0], before[1], d[0], d[0], d[1]); }, fp8});
}

}  // namespace

std::unique_ptr<Expert> make_mixtral_expert(const PartSetup& setup) { return make(setup, false); }
std::unique_ptr<Expert> make_mixtral_fp8_expert(const PartSetup& setup) { return make(setup, true); }

}  // namespace moe
