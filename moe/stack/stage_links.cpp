#include "moe/stack/stage_links.h"

namespace moe {

StageLinks::StageLinks(Communicator& world, const StageSplit& split) {
  const int of_stage = world.size() / split.stages, stage = world.rank() / of_stage;
  const int links = split.virtual_stages > 1 ? split.stages : split.stages - 1;
  for (int before = 0; before < links; ++before) {
    const bool sends = stage == before, receives = stage == (before + 1) % split.stages;
    const int colour = sends || receives ? world.rank() % of_stage : -1;
    auto forward = world.split(colour, sends ? 0 : 1), backward = world.split(colour, sends ? 0 : 1);
    if (sends) links_[0].out = std::move(forward), links_[1].in = std::move(backward);
    if (receives) links_[0].in = std::move(forward), links_[1].out = std::move(backward);
  }
}

}  // namespace moe
