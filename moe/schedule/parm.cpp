// Parm (section V): S1 or S2, whichever its cost model finds faster.
#include <array>

#include "moe/schedule/rows.h"

namespace moe {
namespace {

constexpr std::array kParmVariants{&kParmS1, &kParmS2};

}  // namespace

const Schedule kParm{.name = "parm",
                     .summary = "parm-s1 or parm-s2, by Parm's cost model",
                     .lanes = LaneLayout::by_network,
                     .degrees = DegreePolicy::one,
                     .gradients = GradientPolicy::after,
                     .moe_part = nullptr,
                     .flow = Flow::fused,
                     .variants = kParmVariants};

}  // namespace moe
