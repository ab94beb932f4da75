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

Registry<ExpertRow>& experts() {
  static Registry<ExpertRow> rows(kExperts);
  return rows;
}

}  // namespace

Ffn register_expert(FfnPart part, ExpertRow row) {
  require<BadInput>(part.gemms == 2 || part.gemms == 3, "expert {}: found {} GEMMs, expected 2 or 3", part.name,
                    part.gemms);
  part.ffn = static_cast<Ffn>(ffn_parts().size());
  row.name = part.name;
  ffn_parts().add(part, "expert");
  experts().add(row, "expert");
  return part.ffn;
}

std::unique_ptr<Expert> make_expert(std::string_view name, const PartSetup& setup) {
  return find_named(experts(), name, "expert").make(setup);
}

}  // namespace moe
