// Whatever parts ranks have of tensors, any others of them can be filled from these in one exchange.
#include <gtest/gtest.h>
#include <numeric>

#include "moe/comm/local/local_world.h"
#include "moe/device/stream.h"
#include "tests/base/error_of.h"
#include "tests/train/random_parts.h"

namespace moe {
namespace {

// Moves the tensors on all ranks, and returns what each got from others.
std::vector<int64_t> move_all(const std::vector<Rank>& from, const std::vector<Rank>& to) {
  const auto ranks = static_cast<int>(from.size());
  std::vector<int64_t> moved(from.size());
  LocalWorld world(ranks);
  world.run([&](int rank) {
    const auto device = make_cpu_device();
    const auto stream = device->make_stream("moves");
    const auto world_comm = world.communicator(rank);
    moved[rank] = move_shards(from[rank].tensors, to[rank].tensors, *world_comm, *device, cpu_memory(), *stream);
  });
  return moved;
}

TEST(MoveShards, FillAnyOtherSharding) {
  int64_t elements = 0, moved = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Dice dice(seed);
    const std::vector<Whole> wholes = random_wholes(dice);
    std::vector<Rank> from = random_shards(wholes, dice), to = random_shards(wholes, dice);
    const size_t ranks = std::max(from.size(), to.size());
    from.resize(ranks);
    to.resize(ranks);
    for (const Rank& rank : to)
      for (const ShardedTensor& t : rank.tensors) {
        std::memset(t.data.data(), 0xAB, t.data.bytes());
        elements += t.data.elements();
      }
    const std::vector<int64_t> bytes = move_all(from, to);
    moved += std::reduce(bytes.begin(), bytes.end());
    for (Rank& rank : to) ASSERT_EQ(rank.wrong(wholes), 0) << "seed " << seed;
  }
  EXPECT_GT(elements, 5'000);
  EXPECT_GT(moved, 5'000);
}

// 4 experts on 4 ranks become 2 on each, as Lina packs them: rank 0 keeps the first and gets the second from rank 1,
// rank 1 gets two from the next ranks, and so on; what all have alike does not move.
TEST(MoveShards, MoveNoMoreThanWhatARankLacks) {
  const ShardRange columns{0, 8, 8}, one{0, 1, 1};
  std::vector<Rank> from(4), to(4);
  Dice dice(1);
  Whole experts("w1", dice), gate("gate", dice);
  experts.extents = {4, 8, 1};
  gate.extents = {1, 8, 1};
  experts.dtype = gate.dtype = DType::float32;
  for (int64_t rank = 0; rank < 4; ++rank) {
    from[rank].add(experts, {ShardRange{rank, 1, 4}, columns, one});
    to[rank].add(experts, {ShardRange{rank % 2 * 2, 2, 4}, columns, one});
    for (auto* ranks : {&from, &to}) (*ranks)[rank].add(gate, {one, columns, one});
  }
  for (Rank& rank : from) rank.fill({experts, gate});
  const int64_t expert = 8 * 4;
  EXPECT_EQ(move_all(from, to), (std::vector<int64_t>{expert, 2 * expert, 2 * expert, expert}));
  for (Rank& rank : to) EXPECT_EQ(rank.wrong({experts, gate}), 0);
}

TEST(MoveShards, NameWhatNoRankHas) {
  const ShardRange columns{0, 2, 2}, one{0, 1, 1};
  Dice dice(1);
  Whole w("w1", dice);
  w.extents = {3, 2, 1};
  std::vector<Rank> from(2), to(2);
  from[1].add(w, {ShardRange{0, 2, 3}, columns, one});
  to[0].add(w, {ShardRange{1, 2, 3}, columns, one});
  EXPECT_EQ(error_of<WrongResult>([&] { move_all(from, to); }),
            "w1: found no rank with element 2 of part 1+2/3 0+2/2 0+1/1, expected one");
}

}  // namespace
}  // namespace moe
