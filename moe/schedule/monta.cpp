// MoNTA (Algorithms 1 and 2): the number of chunks and the best of O1, O2 and O3; no chunk below the smallest that is
// worth sending.
#include <array>

#include "moe/schedule/rows.h"

namespace moe {
namespace {

constexpr std::array kVariants{&kMontaO1, &kMontaO2, &kMontaO3};

}  // namespace

const Schedule kMonta{.name = "monta",
                      .summary = "the best of monta-o1, monta-o2 and monta-o3 and their number of chunks",
                      .lanes = LaneLayout::by_network_copy,
                      .degrees = DegreePolicy::shared,
                      .gradients = GradientPolicy::after,
                      .moe_part = nullptr,
                      .flow = Flow::dropped,
                      .variants = kVariants};

}  // namespace moe
