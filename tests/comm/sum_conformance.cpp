// Operations that sum, in rank order to the last bit.
#include <numeric>

#include "tests/comm/communicator_conformance.h"

namespace moe {
namespace {

template <class T>
constexpr DType kDType = sizeof(T) == 4 ? DType::float32 : DType::float64;

template <class T>
std::vector<T> sum_in_rank_order(int ranks, int64_t elements) {
  auto sum = numbers_of_rank<T>(0, 0, elements);
  for (int rank = 1; rank < ranks; ++rank) {
    const auto more = numbers_of_rank<T>(rank, 0, elements);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
  }
  return sum;
}

template <class T>
void check_reducescatter(Communicator& world, Stream& lane, int64_t block) {
  const auto send = numbers_of_rank<T>(world.rank(), 0, block * world.size());
  std::vector<T> receive(static_cast<size_t>(block));
  world.reducescatter(send.data(), receive.data(), block, kDType<T>, {lane});
  lane.synchronize();
  const auto sum = sum_in_rank_order<T>(world.size(), block * world.size());
  const auto ours = sum.begin() + block * world.rank();
  EXPECT_TRUE(std::equal(receive.begin(), receive.end(), ours)) << block << " elements on rank " << world.rank();
}

// Blocks of (3 rank + 5) % 7 units: no two neighbours' are equal, and rank 3's is empty.
template <class T>
void check_reducescatterv(Communicator& world, Stream& lane, int64_t unit) {
  std::vector<int64_t> blocks;
  for (int rank = 0; rank < world.size(); ++rank) blocks.push_back((rank * 3 + 5) % 7 * unit);
  const int64_t all = std::accumulate(blocks.begin(), blocks.end(), int64_t{0});
  const auto send = numbers_of_rank<T>(world.rank(), 0, all);
  std::vector<T> receive(static_cast<size_t>(blocks[static_cast<size_t>(world.rank())]));
  world.reducescatterv(send.data(), receive.data(), blocks, kDType<T>, {lane});
  lane.synchronize();
  const auto sum = sum_in_rank_order<T>(world.size(), all);
  const auto ours = sum.begin() + std::accumulate(blocks.begin(), blocks.begin() + world.rank(), int64_t{0});
  EXPECT_TRUE(std::equal(receive.begin(), receive.end(), ours)) << "unit of " << unit << " on rank " << world.rank();
}

template <class T>
void check_allreduce(Communicator& world, Stream& lane, int64_t elements) {
  auto data = numbers_of_rank<T>(world.rank(), 0, elements);
  world.allreduce(data.data(), elements, kDType<T>, {lane});
  lane.synchronize();
  EXPECT_TRUE(data == sum_in_rank_order<T>(world.size(), elements)) << elements << " elements on rank " << world.rank();
}

TEST_P(CommunicatorConformance, ReducescatterSumsInRankOrder) {
  run([&](Communicator& world, Device& device) {
    const auto lane = device.make_stream("lane");
    for (const int64_t block : {0, 1, 13, 1025, 50021}) {
      check_reducescatter<float>(world, *lane, block);
      check_reducescatter<double>(world, *lane, block);
    }
  });
}

TEST_P(CommunicatorConformance, ReducescattervSumsUnequalBlocksInRankOrder) {
  run([&](Communicator& world, Device& device) {
    const auto lane = device.make_stream("lane");
    for (const int64_t unit : {0, 1, 13, 1025, 10007}) {
      check_reducescatterv<float>(world, *lane, unit);
      check_reducescatterv<double>(world, *lane, unit);
    }
  });
}

TEST_P(CommunicatorConformance, AllreduceSumsInRankOrderOnAllRanks) {
  run([&](Communicator& world, Device& device) {
    const auto lane = device.make_stream("lane");
    for (const int64_t elements : {0, 1, 3, 13, 1025, 200003}) {
      check_allreduce<float>(world, *lane, elements);
      check_allreduce<double>(world, *lane, elements);
    }
  });
}

TEST_P(CommunicatorConformance, RefusesWhatItCannotSumAtTheCall) {
  run([&](Communicator& world, Device& device) {
    const auto lane = device.make_stream("lane");
    float data = 0, sum = 0;
    EXPECT_ANY_THROW(world.allreduce(&data, -1, DType::float32, {*lane}));
    EXPECT_ANY_THROW(world.reducescatter(&data, &sum, -1, DType::float32, {*lane}));
    world.barrier({*lane});
    EXPECT_EQ(failure_of(*lane), "none");
  });
}

}  // namespace
}  // namespace moe
