#pragma once
// Links a stage's ranks with those at the same place in the neighbouring stages. Forward and backward have links of
// their own, and what is sent leaves on a stream of its own: the lane that sends goes on at once, as it does in a plan,
// where a receive alone waits. So stages that send to each other at the same time don't wait for each other.
#include <array>
#include <memory>

#include "moe/comm/communicator.h"
#include "moe/plan/plan.h"

namespace moe {

class StageLinks {
 public:
  /// Makes a rank's links, blocking: all ranks of `world` make theirs. With virtual stages the last stage is before the
  /// first one. In a link the stage before has rank 0.
  StageLinks(Communicator& world, const StageSplit& split);

  /// These return what sends to the next stage (forward) or the one before (backward), and what receives from the
  /// other; null where there is none.
  Communicator* to_next(Phase phase) const { return of(phase).out.get(); }
  Communicator* from_before(Phase phase) const { return of(phase).in.get(); }

 private:
  struct Links {
    std::unique_ptr<Communicator> out, in;
  };
  const Links& of(Phase phase) const { return links_[static_cast<size_t>(phase)]; }

  std::array<Links, 2> links_;
};

}  // namespace moe
