// What one rank sends and another receives.
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
          const auto values = bytes_of_rank(from, to, bytes);
          const OnDevice<std::byte> sent(device, *lane, values), received(device, values.size());
          if (rank == from) world.send(sent.data(), bytes, to, {.stream = *lane, .task = "send"});
          if (rank == to) {
            world.receive(received.data(), bytes, from, {.stream = *lane, .task = "receive"});
            EXPECT_TRUE(received.read(*lane) == values) << bytes << " bytes from " << from << " to " << to;
          }
          lane->synchronize();
        }
      }
    }
  });
}

// As pipeline stages do: each notes its rank on what came from below and passes it on, round after round, between
// collectives of all.
TEST_P(CommunicatorConformance, ValuesTravelAlongAChainInOrder) {
  constexpr size_t kRounds = 100;
  run([&](Communicator& world, Device& device) {
    const auto lane = device.make_stream("lane");
    const int rank = world.rank(), last = world.size() - 1;
    const size_t places = static_cast<size_t>(ranks()), ours = static_cast<size_t>(rank);
    std::vector<double> stamps, expected;
    for (size_t round = 0; round < kRounds; ++round) {
      const auto stamp = [round](size_t of) { return static_cast<double>(round * 100 + of); };
      stamps.push_back(stamp(ours));
      for (size_t place = 0; place < places; ++place) expected.push_back(place <= ours ? stamp(place) : -1);
    }
    const OnDevice<double> note(device, *lane, std::vector<double>(places, -1)), stamped(device, *lane, stamps);
    const OnDevice<double> seen(device, kRounds * places);
    for (size_t round = 0; round < kRounds; ++round) {
      if (rank > 0) world.receive(note.data(), note.bytes(), rank - 1, {*lane});
      lane->copy({note.data() + ours, stamped.data() + round, sizeof(double)});
      lane->copy({seen.data() + round * places, note.data(), note.bytes()});
      if (rank < last) world.send(note.data(), note.bytes(), rank + 1, {*lane});
      if (round % 10 == 0) world.barrier({*lane});
    }
    EXPECT_EQ(seen.read(*lane), expected);
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
