#pragma once
// Arguments of a communicator's operation that can't be right on any rank, refused at the call: BadInput names the
// operation and its task.
#include <string_view>
#include <vector>

#include "moe/comm/communicator.h"

namespace moe {

/// As many blocks as ranks, none negative.
void require_blocks(const Communicator& group, std::string_view op, const std::vector<int64_t>& blocks,
                    const CommCall& call);
/// Those of both directions; what a rank sends itself it expects.
void require_alltoallv(const Communicator& group, const std::vector<int64_t>& send_bytes,
                       const std::vector<int64_t>& receive_bytes, const CommCall& call);
void require_root(const Communicator& group, int root, const CommCall& call);
void require_peer(const Communicator& group, std::string_view op, int peer, const CommCall& call);

}  // namespace moe
