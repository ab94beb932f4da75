// Where the shared expert stands in a pass, whatever the schedule.
#include <utility>

#include "moe/schedule/layer_builder.h"

namespace moe {

// The shared expert follows what the MoE part follows: its tasks come first on their lanes, so that it runs beside the
// first exchange. Where MP ranks have their own tokens it gathers those that its shards share.
void LayerBuilder::begin_shared(const Access& tokens) {
  shared_ = {};
  if (!shared_expert_) return;
  const Chain before = std::exchange(dense_, {dense_.after, tokens});
  if (traits_of(schedule_.flow).gates == Tokens::own) push_dense(TaskKind::shared_allgather, Buffer::shared_input);
  const Access input = dense_.data;
  push_dense(TaskKind::shared, Buffer::shared_partial);
  if (pass_->phase == Phase::forward)
    found().shared_input = input;
  else
    last().reads.push_back(found().shared_input);  // stored activations
  shared_ = std::exchange(dense_, before);
  if (!schedule_.in_sequence) return;
  end_shared();
  dense_.after.insert(dense_.after.end(), shared_.after.begin(), shared_.after.end());
}

void LayerBuilder::end_shared() {
  if (!shared_expert_) return;
  std::swap(dense_, shared_);
  const bool scatters = traits_of(schedule_.flow).gates == Tokens::own;
  push_dense(scatters ? TaskKind::shared_reducescatter : TaskKind::shared_allreduce, Buffer::shared_sum);
  std::swap(dense_, shared_);
}

}  // namespace moe
