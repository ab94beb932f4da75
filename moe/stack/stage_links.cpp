#include "moe/stack/stage_links.h"

namespace moe {

StageLinks::StageLinks(Communicator& world, const ParallelShape& p) {
  const int stage = place_in(p, GroupKind::pp, world.rank()), of_stage = p.ranks() / p.pp;
  for (int before = 0; before + 1 < p.pp; ++before) {
    const bool sends = stage == before, receives = stage == before + 1;
    const int colour = sends || receives ? world.rank() % of_stage : -1;
    auto forward = world.split(colour, world.rank()), backward = world.split(colour, world.rank());
    if (sends) links_[0].out = std::move(forward), links_[1].in = std::move(backward);
    if (receives) links_[0].in = std::move(forward), links_[1].out = std::move(backward);
  }
}

}  // namespace moe
