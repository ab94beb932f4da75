// Operations that move bytes.
#include <numeric>

#include "moe/base/check.h"
#include "tests/comm/communicator_conformance.h"

namespace moe {
namespace {

using Bytes = std::vector<std::byte>;
using Buffer = OnDevice<std::byte>;

void append(Bytes& to, const Bytes& more) { to.insert(to.end(), more.begin(), more.end()); }

TEST_P(CommunicatorConformance, RanksAndSizes) {
  run([&](Communicator& world, Device& device) {
    const auto lane = device.make_stream("lane");
    ASSERT_EQ(world.size(), ranks());
    const int rank = world.rank();
    std::vector<int> expected(ranks());
    std::iota(expected.begin(), expected.end(), 0);
    const OnDevice<int> ours(device, *lane, {rank}), seen(device, expected.size());
    world.allgather(ours.data(), seen.data(), sizeof rank, {*lane});
    EXPECT_EQ(seen.read(*lane), expected);
  });
}

TEST_P(CommunicatorConformance, AlltoallRoutesEveryBlock) {
  run([&](Communicator& world, Device& device) {
    const auto lane = device.make_stream("lane");
    for (const int64_t block : kSizes) {
      const Buffer send(device, *lane, bytes_of_rank(world.rank(), 0, block * ranks())), receive(device, send.size());
      Bytes expected;
      world.alltoall(send.data(), receive.data(), block, {*lane});
      for (int from = 0; from < ranks(); ++from) append(expected, bytes_of_rank(from, 0, block, block * world.rank()));
      EXPECT_TRUE(receive.read(*lane) == expected) << "blocks of " << block << " bytes on rank " << world.rank();
    }
  });
}

// Some blocks are empty, no two of a rank are equal, and what i sends j isn't what j sends i.
int64_t unequal(int from, int to, int64_t unit) { return (from * 3 + to * 5) % 7 * unit; }

TEST_P(CommunicatorConformance, AlltoallvRoutesUnequalBlocks) {
  run([&](Communicator& world, Device& device) {
    const auto lane = device.make_stream("lane");
    const int rank = world.rank();
    for (const int64_t unit : {0, 1, 13, 40009}) {
      std::vector<int64_t> send_bytes, receive_bytes;
      Bytes send, expected;
      for (int peer = 0; peer < ranks(); ++peer) {
        send_bytes.push_back(unequal(rank, peer, unit));
        receive_bytes.push_back(unequal(peer, rank, unit));
        append(send, bytes_of_rank(rank, peer, send_bytes.back()));
        append(expected, bytes_of_rank(peer, rank, receive_bytes.back()));
      }
      const Buffer sent(device, *lane, send), receive(device, expected.size());
      world.alltoallv(sent.data(), send_bytes, receive.data(), receive_bytes, {*lane});
      EXPECT_TRUE(receive.read(*lane) == expected) << "unit of " << unit << " bytes on rank " << rank;
    }
  });
}

TEST_P(CommunicatorConformance, AllgatherCollectsAndMayHoldOursAlready) {
  run([&](Communicator& world, Device& device) {
    const auto lane = device.make_stream("lane");
    for (const int64_t block : kSizes) {
      const Bytes send = bytes_of_rank(world.rank(), 0, block);
      Bytes expected;
      for (int from = 0; from < ranks(); ++from) append(expected, bytes_of_rank(from, 0, block));
      const Buffer sent(device, *lane, send), apart(device, expected.size()), in_place(device, expected.size());
      std::byte* ours = in_place.data() + block * world.rank();
      lane->copy({ours, sent.data(), block});
      world.allgather(sent.data(), apart.data(), block, {*lane});
      world.allgather(ours, in_place.data(), block, {*lane});
      EXPECT_TRUE(apart.read(*lane) == expected) << "blocks of " << block << " bytes on rank " << world.rank();
      EXPECT_TRUE(in_place.read(*lane) == expected) << "in place, " << block << " bytes on rank " << world.rank();
    }
  });
}

TEST_P(CommunicatorConformance, AllgathervCollectsUnequalBlocksAndMayHoldOursAlready) {
  run([&](Communicator& world, Device& device) {
    const auto lane = device.make_stream("lane");
    const int rank = world.rank();
    for (const int64_t unit : {0, 1, 13, 40009}) {
      std::vector<int64_t> blocks;
      Bytes expected;
      for (int from = 0; from < ranks(); ++from) {
        blocks.push_back(unequal(from, 1, unit));
        append(expected, bytes_of_rank(from, 0, blocks.back()));
      }
      const Bytes send = bytes_of_rank(rank, 0, blocks[rank]);
      const Buffer sent(device, *lane, send), apart(device, expected.size()), in_place(device, expected.size());
      std::byte* ours = in_place.data() + std::accumulate(blocks.begin(), blocks.begin() + rank, int64_t{0});
      lane->copy({ours, sent.data(), static_cast<int64_t>(sent.size())});
      world.allgatherv(sent.data(), apart.data(), blocks, {*lane});
      world.allgatherv(ours, in_place.data(), blocks, {*lane});
      EXPECT_TRUE(apart.read(*lane) == expected) << "unit of " << unit << " bytes on rank " << rank;
      EXPECT_TRUE(in_place.read(*lane) == expected) << "in place, unit of " << unit << " bytes on rank " << rank;
    }
  });
}

TEST_P(CommunicatorConformance, BroadcastFromEveryRoot) {
  run([&](Communicator& world, Device& device) {
    const auto lane = device.make_stream("lane");
    for (int root = 0; root < ranks(); ++root) {
      for (const int64_t bytes : kSizes) {
        const Buffer data(device, *lane, bytes_of_rank(world.rank(), root, bytes));
        world.broadcast(data.data(), bytes, root, {*lane});
        EXPECT_TRUE(data.read(*lane) == bytes_of_rank(root, root, bytes)) << bytes << " bytes from " << root;
      }
    }
  });
}

// The ranks of one machine share its clock.
TEST_P(CommunicatorConformance, BarrierSeparates) {
  constexpr size_t kRounds = 200;
  run([&](Communicator& world, Device& device) {
    const auto lane = device.make_stream("lane");
    std::vector<std::unique_ptr<Event>> came, went;
    for (size_t round = 0; round < kRounds; ++round) {
      came.push_back(device.make_event());
      went.push_back(device.make_event());
      lane->record(*came.back());
      world.barrier({*lane});
      lane->record(*went.back());
    }
    lane->synchronize();
    std::vector<double> ours;
    for (const auto* events : {&came, &went})
      for (const auto& event : *events) ours.push_back(event->seconds());
    const OnDevice<double> sent(device, *lane, ours), all(device, ours.size() * static_cast<size_t>(ranks()));
    world.allgather(sent.data(), all.data(), static_cast<int64_t>(ours.size() * sizeof(double)), {*lane});
    const std::vector<double> times = all.read(*lane);
    const double error = factory().clock_error_s;
    for (size_t one = 0; one < times.size(); one += ours.size())
      for (size_t other = 0; other < times.size(); other += ours.size())
        for (size_t round = 0; round < kRounds; ++round)
          EXPECT_GE(times[one + kRounds + round], times[other + round] - error) << "round " << round;
  });
}

// An operation must not end while another rank still reads our buffer: what follows overwrites it at once.
TEST_P(CommunicatorConformance, BuffersMayBeReusedRightAfterwards) {
  constexpr size_t kBlock = 997, kRounds = 200;
  run([&](Communicator& world, Device& device) {
    const auto lane = device.make_stream("lane");
    const size_t bytes = kBlock * static_cast<size_t>(ranks());
    const auto mark = [](size_t round, int rank) {
      return static_cast<std::byte>(round * 8 + static_cast<size_t>(rank));
    };
    Bytes to_send, expected;
    for (size_t round = 0; round < kRounds; ++round) {
      append(to_send, Bytes(bytes, mark(round, world.rank())));
      for (int from = 0; from < ranks(); ++from) append(expected, Bytes(kBlock, mark(round, from)));
    }
    const Buffer source(device, *lane, to_send), results(device, expected.size());
    const Buffer send(device, bytes), receive(device, bytes);
    for (size_t round = 0; round < kRounds; ++round) {
      lane->copy({send.data(), source.data() + round * bytes, send.bytes()});
      world.alltoall(send.data(), receive.data(), kBlock, {*lane});
      lane->copy({results.data() + round * bytes, receive.data(), receive.bytes()});
    }
    EXPECT_TRUE(results.read(*lane) == expected);
  });
}

TEST_P(CommunicatorConformance, WrongArgumentsAreRefusedAtTheCall) {
  run([&](Communicator& world, Device& device) {
    const auto lane = device.make_stream("lane");
    std::byte byte{};
    const std::vector<int64_t> fitting(ranks(), 0);
    std::vector<int64_t> longer = fitting, negative = fitting, more_to_itself = fitting;
    longer.push_back(0);
    negative[0] = -8;
    more_to_itself[world.rank()] = 1;
    EXPECT_THROW(world.alltoall(&byte, &byte, -1, {*lane}), BadInput);
    EXPECT_THROW(world.alltoallv(&byte, longer, &byte, fitting, {*lane}), BadInput);
    EXPECT_THROW(world.alltoallv(&byte, fitting, &byte, negative, {*lane}), BadInput);
    EXPECT_THROW(world.alltoallv(&byte, more_to_itself, &byte, fitting, {*lane}), BadInput);
    for (const auto& blocks : {longer, negative}) {
      EXPECT_THROW(world.allgatherv(&byte, &byte, blocks, {*lane}), BadInput);
      EXPECT_THROW(world.reducescatterv(&byte, &byte, blocks, DType::float32, {*lane}), BadInput);
    }
    EXPECT_THROW(world.broadcast(&byte, 1, ranks(), {*lane}), BadInput);
    EXPECT_THROW(world.broadcast(&byte, 1, -1, {*lane}), BadInput);
    lane->synchronize();
  });
}

}  // namespace
}  // namespace moe
