#pragma once
// Parts of tensors that are sharded over ranks. A part is a box of the whole tensor: a range of each of its three axes.
// Checkpoints store parts, and training moves them from rank to rank.
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
/// (axes[0].count, axes[1].count, axes[2].count) elements, row-major. Parts of different ranks may overlap; then they
/// are copies.
struct ShardedTensor {
  std::string name;  // name of the whole tensor, the same on all ranks; only letters, digits, blanks and _ - .
  ShardAxes axes;
  TensorView data;
};

/// Returns "0+4/16 8+8/16 0+1/1", of each axis first, count and total.
std::string text_of(const ShardAxes& axes);
/// Reads the text of text_of(); none if it is malformed or if a part exceeds the whole.
std::optional<ShardAxes> axes_from(const std::string& text);

/// Throws BadInput naming the tensor unless it is on `device` and has as many elements as its axes say.
void check_shard(const ShardedTensor& tensor, DeviceKind device);

/// A run of `count` elements that begins at `from` in one part and at `to` in another.
struct ShardRun {
  int64_t from = 0, to = 0, count = 0;
};
int64_t elements_in(const ShardAxes& axes);
/// Returns the elements that two parts have in common, as runs that are contiguous in both.
std::vector<ShardRun> common_runs(const ShardAxes& part, const ShardAxes& wanted);

/// Fills the tensors `to` with elements of all ranks' tensors `from`, in one AlltoAll. Elements that a rank has itself
/// are copied; others come from the next rank that has them. All ranks of `world_comm` call it, each with any tensors
/// and parts, which lie in `memory`, the memory of the stream's device. Blocking. Returns the bytes received from other
/// ranks. Throws WrongResult naming a tensor and its first element that no rank has.
int64_t move_shards(std::span<const ShardedTensor> from, std::span<const ShardedTensor> to, Communicator& world_comm,
                    Device& device, MemorySpace& memory, Stream& stream);

}  // namespace moe
