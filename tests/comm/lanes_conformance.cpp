// Several communicators at once, and how they are made.
#include "tests/comm/communicator_conformance.h"

namespace moe {
namespace {

/// The world rank of each member, as its members tell each other.
std::vector<int> members_of(Communicator& group, Stream& lane, int world_rank) {
  std::vector<int> members(static_cast<size_t>(group.size()));
  group.allgather(&world_rank, members.data(), sizeof(int), {lane});
  lane.synchronize();
  return members;
}

TEST_P(CommunicatorConformance, SplitOrdersByKeyThenRank) {
  run([&](Communicator& world, Device& device) {
    const auto lane = device.make_stream("lane");
    const int rank = world.rank();
    std::vector<int> same, reversed, halves;
    for (int other = 0; other < ranks(); ++other) {
      same.push_back(other);
      reversed.insert(reversed.begin(), other);
      if (other % 2 == rank % 2) halves.push_back(other);
    }
    EXPECT_EQ(members_of(*world.split(7, 0), *lane, rank), same);
    EXPECT_EQ(members_of(*world.split(0, -rank), *lane, rank), reversed);
    const auto half = world.split(rank % 2, 0);
    EXPECT_EQ(members_of(*half, *lane, rank), halves);
    EXPECT_EQ(half->rank(), rank / 2);
    const auto alone = half->split(half->rank(), 0);
    EXPECT_EQ(members_of(*alone, *lane, rank), std::vector<int>{rank});
  });
}

TEST_P(CommunicatorConformance, ANegativeColourBelongsToNone) {
  run([&](Communicator& world, Device& device) {
    const auto lane = device.make_stream("lane");
    const auto first = world.split(world.rank() == 0 ? 3 : -1, 0);
    EXPECT_EQ(first != nullptr, world.rank() == 0);
    if (first) {
      EXPECT_EQ(members_of(*first, *lane, 0), std::vector<int>{0});
    }
    EXPECT_EQ(world.split(-1, 0), nullptr);
  });
}

TEST_P(CommunicatorConformance, CommunicatorsOutliveTheOneTheyWereSplitFrom) {
  run([&](Communicator& world, Device& device) {
    const auto lane = device.make_stream("lane");
    auto parent = world.split(0, 0);
    const auto child = parent->split(0, 0);
    parent.reset();
    EXPECT_EQ(members_of(*child, *lane, world.rank()).size(), static_cast<size_t>(ranks()));
  });
}

TEST_P(CommunicatorConformance, ManySplitsInARow) {
  run([&](Communicator& world, Device&) {
    for (int round = 0; round < 100; ++round) {
      const auto group = world.split((world.rank() + round) % 3, round);
      EXPECT_GE(group->size(), 1);
    }
  });
}

/// Every round each rank sends each member of `group` its rank, the round and the member, and checks what came.
void exchange(Communicator& group, Stream& lane, int salt, int rounds, std::atomic<int>& wrong) {
  struct Note {
    int salt, round, from, to;
    bool operator==(const Note&) const = default;
  };
  const auto size = static_cast<size_t>(group.size());
  for (int round = 0; round < rounds; ++round) {
    auto send = std::make_shared<std::vector<Note>>(), receive = std::make_shared<std::vector<Note>>(size);
    for (int to = 0; to < group.size(); ++to) send->push_back({salt, round, group.rank(), to});
    group.alltoall(send->data(), receive->data(), sizeof(Note), {lane});
    lane.launch([&, salt, round, send, receive, rank = group.rank()](void*) {
      for (size_t from = 0; from < receive->size(); ++from)
        if ((*receive)[from] != Note{salt, round, static_cast<int>(from), rank}) ++wrong;
    });
  }
}

// Rows, columns and the whole of a grid of ranks, each on its own lane, none in step with the others.
TEST_P(CommunicatorConformance, OverlappingGroupsRunOnSeveralLanesAtOnce) {
  std::atomic<int> wrong{0};
  run([&](Communicator& world, Device& device) {
    const int rank = world.rank();
    const auto rows = world.split(rank / 2, 0), columns = world.split(rank % 2, 0), all = world.split(0, 0),
               other = world.split(0, 0);
    std::vector<std::unique_ptr<Stream>> lanes;
    for (int lane = 0; lane < 4; ++lane) lanes.push_back(device.make_stream("lane"));
    exchange(*rows, *lanes[0], 1, 150, wrong);
    exchange(*columns, *lanes[1], 2, 200, wrong);
    exchange(*all, *lanes[2], 3, 100, wrong);
    exchange(*other, *lanes[3], 4, 50, wrong);
    for (const auto& lane : lanes) lane->synchronize();
  });
  EXPECT_EQ(wrong, 0);
}

TEST_P(CommunicatorConformance, LanesThatWaitForEachOtherDontDeadlock) {
  std::atomic<int> wrong{0};
  run([&](Communicator& world, Device& device) {
    const auto one = world.split(0, 0), two = world.split(0, 0);
    const auto first = device.make_stream("first"), second = device.make_stream("second");
    const auto there = device.make_event(), back = device.make_event();
    for (int round = 0; round < 100; ++round) {
      exchange(*one, *first, round, 1, wrong);
      first->record(*there);
      second->wait(*there);
      exchange(*two, *second, -round, 1, wrong);
      second->record(*back);
      first->wait(*back);
    }
    first->synchronize();
    second->synchronize();
  });
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace moe
