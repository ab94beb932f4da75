// Sizes that are known at run time only: rows of a layer that drops no token.
#include <algorithm>

#include "moe/layer/binding.h"

namespace moe {

// After the gate, on its lane: the auxiliary losses' sums and, where no token is dropped, every rank's counts of rows.
// The latter stop the issuing thread, since what it issues next depends on them.
void LayerBinding::agree(Stream& stream) {
  Communicator& everyone = layer_.comms_.of(GroupKind::none);
  const TensorView sums = layer_.gate_->statistics();
  if (sums.elements() > 0 && sums.data() != nullptr && everyone.size() > 1)
    everyone.allreduce(sums.data(), sums.elements(), sums.dtype(), {stream, {}, "sums of the auxiliary losses"});
  if (rank().shape.layer.capacity_factor) return;
  const int64_t experts = rank().experts.total, held = rank().held_groups() * experts;
  const int64_t* own = layer_.routing_.filled.data() + rank().first_held_group() * experts;
  everyone.allgather(own, of_ranks_.data(), held * static_cast<int64_t>(sizeof *own), {stream, {}, "counts of rows"});
  stream.synchronize();
  const std::vector<int> of_members = members(rank().shape.parallel, GroupKind::ep_esp, rank().rank);
  for (size_t i = 0; i < of_members.size(); ++i)
    std::copy_n(of_ranks_.begin() + of_members[i] * held, held,
                counts_.members.begin() + static_cast<int64_t>(i) * held);
  std::ranges::copy(layer_.routing_.filled, counts_.gated.begin());
  if (pads_to_largest_load(rank().shape)) {
    const int64_t largest = padded_rows(rank().shape, *std::ranges::max_element(of_ranks_));
    std::ranges::fill(counts_.members, largest);
    std::ranges::fill(counts_.gated, largest);
  }
  for (const Phase phase : {Phase::forward, Phase::backward}) {
    part(phase).layouts.set_counts(rank(), counts_);
    part(phase).rows.update(part(phase).layouts.gathered);
  }
  fit();
}

void LayerBinding::fit() {
  for (const Phase phase : {Phase::forward, Phase::backward}) layer_.buffers_.fit(rank(), phase, part(phase).layouts);
  layer_.expert_->reserve(part(Phase::forward).rows.total());
}

}  // namespace moe
