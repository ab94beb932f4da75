// Several communicators at once, and how they are made.
#include "tests/comm/communicator_conformance.h"

namespace moe {
namespace {

/// The world rank of each member, as its members tell each other.
std::vector<int> members_of(Communicator& group, Device& device, int world_rank) {
  const auto lane = device.make_stream("lane");
  const OnDevice<int> ours(device, *lane, {world_rank}), members(device, static_cast<size_t>(group.size()));
  group.allgather(ours.data(), members.data(), sizeof(int), {*lane});
  return members.read(*lane);
}

TEST_P(CommunicatorConformance, SplitOrdersByKeyThenRank) {
  run([&](Communicator& world, Device& device) {
    const int rank = world.rank();
    std::vector<int> same, reversed, halves;
    for (int other = 0; other < ranks(); ++other) {
      same.push_back(other);
      reversed.insert(reversed.begin(), other);
      if (other % 2 == rank % 2) halves.push_back(other);
    }
    EXPECT_EQ(members_of(*world.split(7, 0), device, rank), same);
    EXPECT_EQ(members_of(*world.split(0, -rank), device, rank), reversed);
    const auto half = world.split(rank % 2, 0);
    EXPECT_EQ(members_of(*half, device, rank), halves);
    EXPECT_EQ(half->rank(), rank / 2);
    const auto alone = half->split(half->rank(), 0);
    EXPECT_EQ(members_of(*alone, device, rank), std::vector<int>{rank});
  });
}

TEST_P(CommunicatorConformance, ANegativeColourBelongsToNone) {
  run([&](Communicator& world, Device& device) {
    const auto first = world.split(world.rank() == 0 ? 3 : -1, 0);
    EXPECT_EQ(first != nullptr, world.rank() == 0);
    if (first) {
      EXPECT_EQ(members_of(*first, device, 0), std::vector<int>{0});
    }
    EXPECT_EQ(world.split(-1, 0), nullptr);
  });
}

TEST_P(CommunicatorConformance, CommunicatorsOutliveTheOneTheyWereSplitFrom) {
  run([&](Communicator& world, Device& device) {
    auto parent = world.split(0, 0);
    const auto child = parent->split(0, 0);
    parent.reset();
    EXPECT_EQ(members_of(*child, device, world.rank()).size(), static_cast<size_t>(ranks()));
  });
}

TEST_P(CommunicatorConformance, ManySplitsInARow) {
  run([&](Communicator& world, Device&) {
    for (int round = 0; round < factory().splits; ++round) {
      const auto group = world.split((world.rank() + round) % 3, round);
      EXPECT_GE(group->size(), 1);
    }
  });
}

struct Note {
  int salt, round, from, to;
  bool operator==(const Note&) const = default;
};

/// Rounds in which each rank sends each member of `group` a note of its own, queued on `lane` by exchange(); wrong() is
/// how many that came are others than expected.
class Exchange {
 public:
  Exchange(Communicator& group, Device& device, Stream& lane, int salt, int rounds)
      : group_(group), lane_(lane), members_(static_cast<size_t>(group.size())) {
    std::vector<Note> notes;
    for (int round = 0; round < rounds; ++round)
      for (int other = 0; other < group.size(); ++other) {
        notes.push_back({salt, round, group.rank(), other});
        expected_.push_back({salt, round, other, group.rank()});
      }
    sent_ = std::make_unique<OnDevice<Note>>(device, lane, notes);
    received_ = std::make_unique<OnDevice<Note>>(device, notes.size());
  }

  void exchange(int round) {
    const size_t at = static_cast<size_t>(round) * members_;
    group_.alltoall(sent_->data() + at, received_->data() + at, sizeof(Note), {lane_});
  }
  int wrong() const {
    const std::vector<Note> received = received_->read(lane_);
    int count = 0;
    for (size_t i = 0; i < received.size(); ++i) count += received[i] == expected_[i] ? 0 : 1;
    return count;
  }

 private:
  Communicator& group_;
  Stream& lane_;
  const size_t members_;
  std::vector<Note> expected_;
  std::unique_ptr<OnDevice<Note>> sent_, received_;
};

// Rows, columns and the whole of a grid of ranks, each on its own lane, none in step with the others.
TEST_P(CommunicatorConformance, OverlappingGroupsRunOnSeveralLanesAtOnce) {
  run([&](Communicator& world, Device& device) {
    const int rank = world.rank();
    std::vector<std::unique_ptr<Communicator>> groups;
    for (const int colour : {rank / 2, rank % 2, 0, 0}) groups.push_back(world.split(colour, 0));
    const std::vector<int> rounds{150, 200, 100, 50};
    std::vector<std::unique_ptr<Stream>> lanes;
    std::vector<Exchange> exchanges;
    for (size_t i = 0; i < groups.size(); ++i) {
      lanes.push_back(device.make_stream("lane"));
      exchanges.emplace_back(*groups[i], device, *lanes[i], static_cast<int>(i), rounds[i]);
    }
    for (size_t i = 0; i < groups.size(); ++i)
      for (int round = 0; round < rounds[i]; ++round) exchanges[i].exchange(round);
    for (const Exchange& exchange : exchanges) EXPECT_EQ(exchange.wrong(), 0);
  });
}

TEST_P(CommunicatorConformance, LanesThatWaitForEachOtherDontDeadlock) {
  constexpr int kRounds = 100;
  run([&](Communicator& world, Device& device) {
    const auto one = world.split(0, 0), two = world.split(0, 0);
    const auto first = device.make_stream("first"), second = device.make_stream("second");
    const auto there = device.make_event(), back = device.make_event();
    Exchange on_first(*one, device, *first, 1, kRounds), on_second(*two, device, *second, 2, kRounds);
    for (int round = 0; round < kRounds; ++round) {
      on_first.exchange(round);
      first->record(*there);
      second->wait(*there);
      on_second.exchange(round);
      second->record(*back);
      first->wait(*back);
    }
    EXPECT_EQ(on_first.wrong(), 0);
    EXPECT_EQ(on_second.wrong(), 0);
  });
}

}  // namespace
}  // namespace moe
