// What one rank sends and another receives.
#include <array>

#include "tests/comm/communicator_conformance.h"

namespace moe {
namespace {

// Every ordered pair in turn: the others pass by without waiting.
TEST_P(CommunicatorConformance, SendAndReceiveBetweenEveryTwo) {
  run([&](Communicator& world, Device& device) {
    const auto lane = device.make_stream("lane");
    const int rank = world.rank();
    for (int from = 0; from < ranks(); ++from) {
      for (int to = 0; to < ranks(); ++to) {
        if (from == to) continue;
        for (const int64_t bytes : kSizes) {
          const auto sent = bytes_of_rank(from, to, bytes);
          std::vector<std::byte> received(sent.size());
          if (rank == from) world.send(sent.data(), bytes, to, {.stream = *lane, .task = "send"});
          if (rank == to) world.receive(received.data(), bytes, from, {.stream = *lane, .task = "receive"});
          lane->synchronize();
          if (rank == to) {
            EXPECT_TRUE(received == sent) << bytes << " bytes from " << from << " to " << to;
          }
        }
      }
    }
  });
}

// As pipeline stages do: each passes on what came from below, round after round, between collectives of all.
TEST_P(CommunicatorConformance, ValuesTravelAlongAChainInOrder) {
  constexpr int kRounds = 100;
  run([&](Communicator& world, Device& device) {
    const auto lane = device.make_stream("lane");
    const int rank = world.rank(), last = world.size() - 1;
    int wrong = 0;
    std::array<int, 2> note{};
    for (int round = 0; round < kRounds; ++round) {
      if (rank > 0) world.receive(note.data(), sizeof note, rank - 1, {*lane});
      lane->launch([&, round](void*) {
        if (rank == 0) note = {round, 0};
        if (note != std::array{round, rank}) ++wrong;
        note = {round, rank + 1};
      });
      if (rank < last) world.send(note.data(), sizeof note, rank + 1, {*lane});
      if (round % 10 == 0) world.barrier({*lane});
    }
    lane->synchronize();
    EXPECT_EQ(wrong, 0);
  });
}

TEST_P(CommunicatorConformance, RefusesPeersThatAreNone) {
  run([&](Communicator& world, Device& device) {
    const auto lane = device.make_stream("lane");
    std::byte byte{};
    for (const int peer : {-1, world.rank(), world.size()}) {
      EXPECT_ANY_THROW(world.send(&byte, 1, peer, {*lane}));
      EXPECT_ANY_THROW(world.receive(&byte, 1, peer, {*lane}));
    }
    if (world.size() > 1) {
      EXPECT_ANY_THROW(world.send(&byte, -1, (world.rank() + 1) % world.size(), {*lane}));
    }
    lane->synchronize();
  });
}

}  // namespace
}  // namespace moe
