// Operations that move bytes.
#include <array>
#include <numeric>

#include "moe/base/check.h"
#include "tests/comm/communicator_conformance.h"

namespace moe {
namespace {

using Bytes = std::vector<std::byte>;

void append(Bytes& to, const Bytes& more) { to.insert(to.end(), more.begin(), more.end()); }

TEST_P(CommunicatorConformance, RanksAndSizes) {
  run([&](Communicator& world, Device& device) {
    const auto lane = device.make_stream("lane");
    ASSERT_EQ(world.size(), ranks());
    const int rank = world.rank();
    std::vector<int> seen(static_cast<size_t>(ranks()), -1), expected(seen.size());
    std::iota(expected.begin(), expected.end(), 0);
    world.allgather(&rank, seen.data(), sizeof rank, {*lane});
    lane->synchronize();
    EXPECT_EQ(seen, expected);
  });
}

TEST_P(CommunicatorConformance, AlltoallRoutesEveryBlock) {
  run([&](Communicator& world, Device& device) {
    const auto lane = device.make_stream("lane");
    for (const int64_t block : kSizes) {
      const Bytes send = bytes_of_rank(world.rank(), 0, block * ranks());
      Bytes receive(send.size()), expected;
      world.alltoall(send.data(), receive.data(), block, {*lane});
      lane->synchronize();
      for (int from = 0; from < ranks(); ++from) append(expected, bytes_of_rank(from, 0, block, block * world.rank()));
      EXPECT_TRUE(receive == expected) << "blocks of " << block << " bytes on rank " << world.rank();
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
      Bytes receive(expected.size());
      world.alltoallv(send.data(), send_bytes, receive.data(), receive_bytes, {*lane});
      lane->synchronize();
      EXPECT_TRUE(receive == expected) << "unit of " << unit << " bytes on rank " << rank;
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
      Bytes apart(expected.size()), in_place(expected.size());
      std::byte* ours = in_place.data() + block * world.rank();
      std::copy(send.begin(), send.end(), ours);
      world.allgather(send.data(), apart.data(), block, {*lane});
      world.allgather(ours, in_place.data(), block, {*lane});
      lane->synchronize();
      EXPECT_TRUE(apart == expected) << "blocks of " << block << " bytes on rank " << world.rank();
      EXPECT_TRUE(in_place == expected) << "in place, " << block << " bytes on rank " << world.rank();
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
      const Bytes send = bytes_of_rank(rank, 0, blocks[static_cast<size_t>(rank)]);
      Bytes apart(expected.size()), in_place(expected.size());
      std::byte* ours = in_place.data() + std::accumulate(blocks.begin(), blocks.begin() + rank, int64_t{0});
      std::copy(send.begin(), send.end(), ours);
      world.allgatherv(send.data(), apart.data(), blocks, {*lane});
      world.allgatherv(ours, in_place.data(), blocks, {*lane});
      lane->synchronize();
      EXPECT_TRUE(apart == expected) << "unit of " << unit << " bytes on rank " << rank;
      EXPECT_TRUE(in_place == expected) << "in place, unit of " << unit << " bytes on rank " << rank;
    }
  });
}

TEST_P(CommunicatorConformance, BroadcastFromEveryRoot) {
  run([&](Communicator& world, Device& device) {
    const auto lane = device.make_stream("lane");
    for (int root = 0; root < ranks(); ++root) {
      for (const int64_t bytes : kSizes) {
        Bytes data = bytes_of_rank(world.rank(), root, bytes);
        world.broadcast(data.data(), bytes, root, {*lane});
        lane->synchronize();
        EXPECT_TRUE(data == bytes_of_rank(root, root, bytes)) << bytes << " bytes from " << root;
      }
    }
  });
}

// The ranks of one machine share its clock.
TEST_P(CommunicatorConformance, BarrierSeparates) {
  constexpr int kRounds = 200;
  run([&](Communicator& world, Device& device) {
    const auto lane = device.make_stream("lane");
    struct Times {
      std::array<double, kRounds> came, went;
    } ours{};
    for (int round = 0; round < kRounds; ++round) {
      const auto note = [&lane, round](std::array<double, kRounds>& times) {
        lane->launch([&times, round](void*) { times[static_cast<size_t>(round)] = now_s(); });
      };
      note(ours.came);
      world.barrier({*lane});
      note(ours.went);
    }
    std::vector<Times> all(static_cast<size_t>(world.size()));
    world.allgather(&ours, all.data(), sizeof ours, {*lane});
    lane->synchronize();
    for (size_t round = 0; round < kRounds; ++round)
      for (const Times& one : all)
        for (const Times& other : all) EXPECT_GE(one.went[round], other.came[round]) << "round " << round;
  });
}

// An operation must not end while another rank still reads our buffer: the next closure overwrites it at once.
TEST_P(CommunicatorConformance, BuffersMayBeReusedRightAfterwards) {
  constexpr int64_t kBlock = 997;
  constexpr int kRounds = 200;
  run([&](Communicator& world, Device& device) {
    const auto lane = device.make_stream("lane");
    Bytes send(static_cast<size_t>(kBlock * ranks())), receive(send.size());
    int wrong = 0;
    for (int round = 0; round < kRounds; ++round) {
      const auto mark = [round](int rank) { return static_cast<std::byte>(round * 8 + rank); };
      lane->launch([&, mark](void*) { std::fill(send.begin(), send.end(), mark(world.rank())); });
      world.alltoall(send.data(), receive.data(), kBlock, {*lane});
      lane->launch([&, mark](void*) {
        for (size_t i = 0; i < receive.size(); ++i)
          if (receive[i] != mark(static_cast<int>(i / kBlock))) ++wrong;
      });
    }
    lane->synchronize();
    EXPECT_EQ(wrong, 0);
  });
}

TEST_P(CommunicatorConformance, WrongArgumentsAreRefusedAtTheCall) {
  run([&](Communicator& world, Device& device) {
    const auto lane = device.make_stream("lane");
    std::byte byte{};
    const std::vector<int64_t> fitting(static_cast<size_t>(ranks()), 0);
    std::vector<int64_t> longer = fitting, negative = fitting;
    longer.push_back(0);
    negative[0] = -8;
    EXPECT_THROW(world.alltoall(&byte, &byte, -1, {*lane}), BadInput);
    EXPECT_THROW(world.alltoallv(&byte, longer, &byte, fitting, {*lane}), BadInput);
    EXPECT_THROW(world.alltoallv(&byte, fitting, &byte, negative, {*lane}), BadInput);
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
