#pragma once
// Parts of tensors that are spread over ranks. A part is any box of the whole; checkpoints store them, and training
// moves them from rank to rank.
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "moe/comm/communicator.h"
#include "moe/device/memory.h"
#include "moe/sharding/rank_shape.h"
#include "moe/tensor/tensor_view.h"

namespace moe {

using ShardAxes = std::array<ShardRange, 3>;

/// This rank's part of a weight or a state; `axes[i]` says which part of axis i of the whole it is. The data has
/// (axes[0].count, axes[1].count, axes[2].count) elements, row-major. Parts of ranks may overlap: copies.
struct ShardedTensor {
  std::string name;  // of letters, digits, blanks and _ - . alone; of all ranks, the whole's
  ShardAxes axes;
  TensorView data;
};

/// Returns "0+4/16 8+8/16 0+1/1", of each axis first, count and total.
std::string text_of(const ShardAxes& axes);
/// Reads that back; nothing for another text or for parts beyond the whole.
std::optional<ShardAxes> axes_from(const std::string& text);

/// Throws BadInput naming the tensor unless it lies on such a device and has its axes' elements.
void check_shard(const ShardedTensor& tensor, DeviceKind device);

/// A run of `count` elements that begins at `from` in one part and at `to` in another.
struct ShardRun {
  int64_t from = 0, to = 0, count = 0;
};
int64_t elements_in(const ShardAxes& axes);
/// Returns what two parts have in common, as runs of elements that lie one after the other in either.
std::vector<ShardRun> common_runs(const ShardAxes& part, const ShardAxes& wanted);

/// Fills each tensor of `to` with what the ranks have of it in their `from`, in one AlltoAll: what a rank has itself is
/// copied, the rest comes from the next rank that has it. Every member of `world_comm` calls it, with tensors of any
/// names and parts; theirs lie in `memory`, which is the stream's device's. Blocking. Returns the bytes that came from
/// other ranks. Throws WrongResult naming a tensor and its first element that no rank has.
int64_t move_shards(std::span<const ShardedTensor> from, std::span<const ShardedTensor> to, Communicator& world_comm,
                    Device& device, MemorySpace& memory, Stream& stream);

}  // namespace moe
