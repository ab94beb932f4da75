// Ranks that disagree or stay away end with an error on all members that names them.
#include <array>

#include "moe/base/check.h"
#include "tests/comm/communicator_conformance.h"

namespace moe {
namespace {

/// Runs `operation` on all ranks and expects every one to fail with a message that holds all of `parts`.
class Disagreement {
 public:
  using Operation = std::function<void(Communicator&, bool odd_one, CommCall)>;

  static void expect(Communicator& world, Device& device, const Operation& operation,
                     const std::vector<std::string>& parts) {
    const auto group = world.split(0, 0);
    const auto lane = device.make_stream("lane");
    const bool odd_one = world.rank() == world.size() - 1;
    operation(*group, odd_one, {.stream = *lane, .task = odd_one ? "task B" : "task A"});
    const std::string failure = failure_of(*lane);
    for (const std::string& part : parts)
      EXPECT_NE(failure.find(part), std::string::npos) << "no \"" << part << "\" in: " << failure;
  }
};

TEST_P(CommunicatorConformance, DisagreementNamesBothRanksTasksAndValuesOnAllRanks) {
  if (ranks() < 2) GTEST_SKIP() << "one rank can't disagree";
  const std::string last = "rank " + std::to_string(ranks() - 1);
  run([&](Communicator& world, Device& device) {
    std::array<double, 64> send{}, receive{};
    const auto expect = [&](const Disagreement::Operation& operation, std::vector<std::string> values) {
      values.insert(values.end(), {"rank 0", last, "'task A'", "'task B'"});
      Disagreement::expect(world, device, operation, values);
    };
    expect([&](Communicator& group, bool odd_one,
               CommCall call) { odd_one ? group.barrier(call) : group.alltoall(send.data(), receive.data(), 8, call); },
           {"alltoall", "barrier"});
    expect([&](Communicator& group, bool odd_one,
               CommCall call) { group.alltoall(send.data(), receive.data(), odd_one ? 16 : 24, call); },
           {"24 bytes", "16 bytes"});
    expect([&](Communicator& group, bool odd_one,
               CommCall call) { group.allreduce(send.data(), 4, odd_one ? DType::float64 : DType::float32, call); },
           {"float32", "float64"});
    expect(
        [&](Communicator& group, bool odd_one, CommCall call) {
          group.reducescatter(send.data(), receive.data(), odd_one ? 0 : 3, DType::float64, call);
        },
        {"3 elements", "0 elements"});
    expect([&](Communicator& group, bool odd_one, CommCall call) { group.broadcast(send.data(), 8, odd_one, call); },
           {"root 0", "root 1"});
    expect(
        [&](Communicator& group, bool odd_one, CommCall call) {
          const std::vector<int64_t> equal(group.size(), 8);
          std::vector<int64_t> more = equal;
          if (odd_one) more[0] = 16;
          group.alltoallv(send.data(), more, receive.data(), equal, call);
        },
        {"16 bytes", "8 bytes"});
  });
}

TEST_P(CommunicatorConformance, RanksThatDisagreeOnUnequalBlocksAreNamedWithTheBlock) {
  if (ranks() < 2) GTEST_SKIP() << "one rank can't disagree";
  const std::string last = "rank " + std::to_string(ranks() - 1);
  run([&](Communicator& world, Device& device) {
    std::array<double, 64> send{}, receive{};
    const auto blocks = [&](bool odd_one) {
      std::vector<int64_t> all(ranks(), 3);
      all[1] = odd_one ? 5 : 4;
      return all;
    };
    const std::vector<std::string> named{"rank 0", last, "'task A'", "'task B'", "block 1 of 4 ", "against 5"};
    Disagreement::expect(
        world, device,
        [&](Communicator& group, bool odd_one, CommCall call) {
          group.allgatherv(send.data(), receive.data(), blocks(odd_one), call);
        },
        named);
    Disagreement::expect(
        world, device,
        [&](Communicator& group, bool odd_one, CommCall call) {
          group.reducescatterv(send.data(), receive.data(), blocks(odd_one), DType::float64, call);
        },
        named);
    Disagreement::expect(world, device,
                         [&](Communicator& group, bool odd_one, CommCall call) {
                           group.reducescatterv(send.data(), receive.data(), blocks(false),
                                                odd_one ? DType::float64 : DType::float32, call);
                         },
                         {"rank 0", last, "float32", "float64"});
  });
}

TEST_P(CommunicatorConformance, AMissingRankIsNamedAfterTheTimeout) {
  if (ranks() < 2) GTEST_SKIP() << "nobody to miss";
  const int missing = ranks() - 1;
  std::atomic<double> first_begin{now_s() + 3600};
  const auto body = [&](Communicator& world, Device& device) {
    const auto lane = device.make_stream("lane");
    if (world.rank() == missing) return;
    first_begin = std::min(first_begin.load(), now_s());
    world.barrier({.stream = *lane, .task = "forward combine"});
    const std::string failure = failure_of(*lane);
    EXPECT_GE(now_s(), first_begin + 0.2);
    EXPECT_NE(failure.find("rank " + std::to_string(missing)), std::string::npos) << failure;
    EXPECT_NE(failure.find("'forward combine'"), std::string::npos) << failure;
  };
  run(body, 0.2);
}

TEST_P(CommunicatorConformance, AbortEndsWhatOthersWaitFor) {
  if (ranks() < 2) GTEST_SKIP() << "nobody else waits";
  run([&](Communicator& world, Device& device) {
    const auto group = world.split(0, 0);
    const auto lane = device.make_stream("lane");
    if (world.rank() == 0) {
      world.abort("had enough");
    } else {
      group->barrier({.stream = *lane, .task = "long wait"});
      const std::string failure = failure_of(*lane);
      EXPECT_NE(failure.find("rank 0 aborted: had enough"), std::string::npos) << failure;
      EXPECT_NE(failure.find("'long wait'"), std::string::npos) << failure;
    }
    const auto later = device.make_stream("later");
    world.barrier({*later});
    EXPECT_NE(failure_of(*later), "none") << "for good";
    EXPECT_THROW(world.split(0, 0), RankFailure);
  });
}

}  // namespace
}  // namespace moe
