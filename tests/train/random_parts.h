#pragma once
// Tensors whose numbers say where they lie, cut into random parts for random ranks.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "moe/base/random.h"
#include "moe/tensor/tensor.h"
#include "moe/train/shards.h"

namespace moe {

inline constexpr DType kTypes[] = {DType::float32, DType::float64, DType::bfloat16, DType::float16};

class Dice {
 public:
  explicit Dice(uint64_t seed) : seed_(seed) {}
  int64_t below(int64_t end) { return static_cast<int64_t>(random_bits(seed_, 1, next_++) % end); }

 private:
  uint64_t seed_, next_ = 0;
};

// Cuts an axis at random places, some of them equal: parts may be empty.
inline std::vector<ShardRange> cut(int64_t total, Dice& dice) {
  std::vector<int64_t> places{0, total};
  for (int64_t parts = dice.below(4); parts > 0; --parts) places.push_back(dice.below(total + 1));
  std::ranges::sort(places);
  std::vector<ShardRange> ranges;
  for (size_t i = 1; i < places.size(); ++i) ranges.push_back({places[i - 1], places[i] - places[i - 1], total});
  return ranges;
}

// A weight's number says where in the whole it lies, its 16 bits as well as they can.
inline void put(TensorView data, int64_t i, uint64_t bits) { std::memcpy(data.at(i), &bits, bytes_of(data.dtype())); }

struct Whole {
  std::string name;
  std::array<int64_t, 3> extents;
  DType dtype;

  Whole(const std::string& n, Dice& dice)
      : name(n),
        extents{1 + dice.below(5), 1 + dice.below(9), 1 + dice.below(dice.below(2) ? 1 : 11)},
        dtype(kTypes[dice.below(4)]) {}
  uint64_t bits(int64_t i, int64_t j, int64_t k) const {
    return random_bits(random_stream_id(name), 2, (i * extents[1] + j) * extents[2] + k);
  }
};

// One rank's tensors and their memory.
struct Rank {
  std::vector<Tensor> memory;
  std::vector<ShardedTensor> tensors;

  void add(const Whole& whole, const ShardAxes& axes) {
    memory.push_back(Tensor({axes[0].count, axes[1].count, axes[2].count}, whole.dtype));
    tensors.push_back({whole.name, axes, memory.back()});
  }
  void fill(const std::vector<Whole>& wholes) {
    each(wholes, [](TensorView data, int64_t i, uint64_t bits) { put(data, i, bits); });
  }
  int64_t wrong(const std::vector<Whole>& wholes) {
    int64_t count = 0;
    each(wholes, [&](TensorView data, int64_t i, uint64_t bits) {
      count += std::memcmp(data.at(i), &bits, bytes_of(data.dtype())) != 0 ? 1 : 0;
    });
    return count;
  }
  template <class Body>
  void each(const std::vector<Whole>& wholes, Body&& body) {
    for (const ShardedTensor& t : tensors) {
      const auto whole = std::ranges::find(wholes, t.name, &Whole::name);
      int64_t at = 0;
      for (int64_t i = 0; i < t.axes[0].count; ++i)
        for (int64_t j = 0; j < t.axes[1].count; ++j)
          for (int64_t k = 0; k < t.axes[2].count; ++k)
            body(t.data, at++, whole->bits(t.axes[0].first + i, t.axes[1].first + j, t.axes[2].first + k));
    }
  }
};

inline std::vector<Whole> random_wholes(Dice& dice) {
  std::vector<Whole> wholes;
  for (int64_t i = 1 + dice.below(5); i > 0; --i) wholes.emplace_back("layer-" + std::to_string(i) + ".w1", dice);
  return wholes;
}

// Gives the boxes of each tensor to ranks by chance, some to two of them; each rank has one box of a tensor at most,
// so there are as many ranks as the tensor with the most boxes needs.
inline std::vector<Rank> random_shards(const std::vector<Whole>& wholes, Dice& dice) {
  std::vector<Rank> ranks(1);
  for (const Whole& whole : wholes) {
    std::vector<ShardAxes> boxes;
    const auto a = cut(whole.extents[0], dice), b = cut(whole.extents[1], dice), c = cut(whole.extents[2], dice);
    for (const ShardRange& i : a)
      for (const ShardRange& j : b)
        for (const ShardRange& k : c) boxes.push_back({i, j, k});
    if (dice.below(2)) boxes.push_back(boxes[dice.below(static_cast<int64_t>(boxes.size()))]);  // a copy
    if (dice.below(3) == 0) {  // a box that overlaps others
      ShardAxes wide = boxes[0];
      for (size_t axis = 0; axis < 3; ++axis) {
        wide[axis].first = dice.below(whole.extents[axis]);
        wide[axis].count = 1 + dice.below(whole.extents[axis] - wide[axis].first);
      }
      boxes.push_back(wide);
    }
    if (ranks.size() < boxes.size()) ranks.resize(boxes.size());
    const int64_t turn = dice.below(static_cast<int64_t>(ranks.size()));
    for (size_t i = 0; i < boxes.size(); ++i) ranks[(i + turn) % ranks.size()].add(whole, boxes[i]);
  }
  for (Rank& rank : ranks) rank.fill(wholes);
  return ranks;
}

}  // namespace moe
