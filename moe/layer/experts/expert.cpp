#include "moe/layer/experts/expert.h"

#include <array>

#include "moe/base/registry.h"
#include "moe/layer/experts/feed_forward.h"

namespace moe {
namespace {

constexpr std::array kExperts{ExpertRow{"gpt", make_gpt_expert}, ExpertRow{"mixtral", make_mixtral_expert},
                              ExpertRow{"gpt-tanh", make_gpt_tanh_expert},
                              ExpertRow{"mixtral-fp8", make_mixtral_fp8_expert}};
static_assert(same_names(kExperts, kFfnParts), "an expert has a row here and one in moe/shape/parts.h");

}  // namespace

std::unique_ptr<Expert> make_expert(std::string_view name, const PartSetup& setup) {
  return find_named(kExperts, name, "expert").make(setup);
}

}  // namespace moe
