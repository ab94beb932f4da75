#include "moe/comm/arguments.h"

#include "moe/base/check.h"

namespace moe {

void require_blocks(const Communicator& group, std::string_view op, const std::vector<int64_t>& blocks,
                    const CommCall& call) {
  require<BadInput>(blocks.size() == static_cast<size_t>(group.size()), "{} '{}': {} blocks for {} ranks", op,
                    call.task, blocks.size(), group.size());
  for (const int64_t block : blocks) require<BadInput>(block >= 0, "{} '{}': a block of size {}", op, call.task, block);
}

void require_alltoallv(const Communicator& group, const std::vector<int64_t>& send_bytes,
                       const std::vector<int64_t>& receive_bytes, const CommCall& call) {
  for (const auto* bytes : {&send_bytes, &receive_bytes}) require_blocks(group, "alltoallv", *bytes, call);
  const auto own = static_cast<size_t>(group.rank());
  require<BadInput>(send_bytes[own] == receive_bytes[own], "alltoallv '{}': rank {} sends itself {} bytes, expects {}",
                    call.task, group.rank(), send_bytes[own], receive_bytes[own]);
}

void require_root(const Communicator& group, int root, const CommCall& call) {
  require<BadInput>(root >= 0 && root < group.size(), "broadcast '{}': root {} of {} ranks", call.task, root,
                    group.size());
}

void require_peer(const Communicator& group, std::string_view op, int peer, const CommCall& call) {
  require<BadInput>(peer >= 0 && peer < group.size() && peer != group.rank(), "{} '{}': peer {} of rank {} of {}", op,
                    call.task, peer, group.rank(), group.size());
}

}  // namespace moe
