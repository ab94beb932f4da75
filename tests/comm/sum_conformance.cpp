// Operations that sum, in rank order to the last bit.
#include <cmath>
#include <numeric>

#include "moe/base/numbers.h"
#include "tests/comm/communicator_conformance.h"

namespace moe {
namespace {

/// Calls check(T{}, its DType) for every type that is summed.
template <class Check>
void for_each_type(Check check) {
  for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16, DType::float16})
    with_number_type(dtype, [&](auto zero) { check(zero, dtype); });
}

/// numbers_of_rank, as far as the type can hold them.
template <class T>
std::vector<T> numbers(int rank, int64_t elements) {
  std::vector<T> all;
  for (const auto v : numbers_of_rank<Accumulator<T>>(rank, 0, elements)) round_to(v, all.emplace_back());
  return all;
}

/// 16-bit numbers are added in float32 and rounded once.
template <class T>
std::vector<T> sum_in_rank_order(int ranks, int64_t elements) {
  std::vector<Accumulator<T>> sum(elements);
  for (int rank = 0; rank < ranks; ++rank) {
    const auto more = numbers<T>(rank, elements);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += widened(more[i]);
  }
  std::vector<T> rounded;
  for (const auto v : sum) round_to(v, rounded.emplace_back());
  return rounded;
}

/// Of one rank: where it sums what, and how exactly.
struct Summing {
  Communicator& world;
  Device& device;
  Stream& lane;
  DType dtype;
  double error = 0;  // 0: to the last bit; else of float32

  /// `found` is `expected` from element `begin` on.
  template <class T>
  bool equal(const OnDevice<T>& found, const std::vector<T>& expected, int64_t begin) const {
    const std::vector<T> values = found.read(lane);
    const double ulps = sizeof(T) == 2 ? 0x1p16 : 1;       // bfloat16's last bit in float32's
    const double most = 70 * error * ulps * world.size();  // summands lie in [-30, 70)
    return std::equal(values.begin(), values.end(), expected.begin() + begin, [&](T a, T b) {
      const double off = std::abs(static_cast<double>(widened(a)) - static_cast<double>(widened(b)));
      return off <= (error == 0 ? 0 : most);
    });
  }
};

template <class T>
void check_reducescatter(const Summing& on, int64_t block) {
  Communicator& world = on.world;
  const OnDevice<T> send(on.device, on.lane, numbers<T>(world.rank(), block * world.size()));
  const OnDevice<T> receive(on.device, static_cast<size_t>(block));
  world.reducescatter(send.data(), receive.data(), block, on.dtype, {on.lane});
  const auto sum = sum_in_rank_order<T>(world.size(), block * world.size());
  EXPECT_TRUE(on.equal(receive, sum, block * world.rank())) << block << " elements on rank " << world.rank();
}

// Blocks of (3 rank + 5) % 7 units: no two neighbours' are equal, and rank 3's is empty.
template <class T>
void check_reducescatterv(const Summing& on, int64_t unit) {
  Communicator& world = on.world;
  std::vector<int64_t> blocks;
  for (int rank = 0; rank < world.size(); ++rank) blocks.push_back((rank * 3 + 5) % 7 * unit);
  const int64_t all = std::accumulate(blocks.begin(), blocks.end(), int64_t{0});
  const OnDevice<T> send(on.device, on.lane, numbers<T>(world.rank(), all));
  const OnDevice<T> receive(on.device, static_cast<size_t>(blocks[world.rank()]));
  world.reducescatterv(send.data(), receive.data(), blocks, on.dtype, {on.lane});
  const auto sum = sum_in_rank_order<T>(world.size(), all);
  const int64_t ours = std::accumulate(blocks.begin(), blocks.begin() + world.rank(), int64_t{0});
  EXPECT_TRUE(on.equal(receive, sum, ours)) << "unit of " << unit << " on rank " << world.rank();
}

template <class T>
void check_allreduce(const Summing& on, int64_t elements) {
  Communicator& world = on.world;
  const OnDevice<T> data(on.device, on.lane, numbers<T>(world.rank(), elements));
  world.allreduce(data.data(), elements, on.dtype, {on.lane});
  EXPECT_TRUE(on.equal(data, sum_in_rank_order<T>(world.size(), elements), 0))
      << elements << " elements on rank " << world.rank();
}

TEST_P(CommunicatorConformance, ReducescatterSumsInRankOrder) {
  run([&](Communicator& world, Device& device) {
    const auto lane = device.make_stream("lane");
    for_each_type([&]<class T>(T, DType dtype) {
      const Summing on{world, device, *lane, dtype, factory().sum_error};
      for (const int64_t block : {0, 1, 13, 1025, 50021}) check_reducescatter<T>(on, block);
    });
  });
}

TEST_P(CommunicatorConformance, ReducescattervSumsUnequalBlocksInRankOrder) {
  run([&](Communicator& world, Device& device) {
    const auto lane = device.make_stream("lane");
    for_each_type([&]<class T>(T, DType dtype) {
      const Summing on{world, device, *lane, dtype, factory().sum_error};
      for (const int64_t unit : {0, 1, 13, 1025, 10007}) check_reducescatterv<T>(on, unit);
    });
  });
}

TEST_P(CommunicatorConformance, AllreduceSumsInRankOrderOnAllRanks) {
  run([&](Communicator& world, Device& device) {
    const auto lane = device.make_stream("lane");
    for_each_type([&]<class T>(T, DType dtype) {
      const Summing on{world, device, *lane, dtype, factory().sum_error};
      for (const int64_t elements : {0, 1, 3, 13, 1025, 200003}) check_allreduce<T>(on, elements);
    });
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
