// One rank of a world of processes: every one runs the same tests in the same order. Started N times by ranks.py, or by
// a launcher.
#include <csignal>
#include <cstdlib>
#include <gtest/gtest.h>
#include <iostream>

#include "moe/base/check.h"
#include "moe/comm/gloo/gloo_world.h"
#include "tests/comm/communicator_conformance.h"

namespace moe {
namespace {

// A process is one rank of one world, which main makes and all tests share.
GlooWorld* this_world = nullptr;

CommunicatorFactory gloo_factory() {
  return {"gloo", [](int ranks, double, const std::function<void(Communicator&, Device&)>& body) {
            GlooWorld& world = *this_world;
            require_equal(ranks, world.ranks(), "ranks of this test");
            world.run([&](int rank) {
              const auto device = make_cpu_device();
              body(*world.communicator(rank), *device);
            });
          }};
}

INSTANTIATE_TEST_SUITE_P(Gloo, CommunicatorConformance,
                         testing::Combine(testing::Values(gloo_factory()), testing::Values(find_launch({}).ranks)),
                         CommunicatorConformance::name);

void on_our_rank(const std::function<void(Communicator&, Stream&)>& body) {
  this_world->run([&](int rank) {
    const auto device = make_cpu_device();
    const auto lane = device->make_stream("lane");
    body(*this_world->communicator(rank), *lane);
    lane->synchronize();
  });
}

// Of several pieces, the last one odd; two that follow each other differ in size.
TEST(GlooRankTest, LongMessagesArriveWholeAndInOrder) {
  on_our_rank([](Communicator& world, Stream& lane) {
    if (world.size() == 1) return;
    const int next = (world.rank() + 1) % world.size(), last = (world.rank() + world.size() - 1) % world.size();
    const auto group = world.split(0, 0), other_way = world.split(0, 0);
    const auto device = make_cpu_device();
    const auto second = device->make_stream("second");
    for (const int64_t bytes : {(int64_t{24} << 20) + 3, int64_t{9} << 20}) {
      const auto sent = bytes_of_rank(world.rank(), 1, bytes);
      std::vector<std::byte> received(sent.size());
      // One send and one receive at a time: of a ring all can't send first.
      const bool first = world.rank() % 2 == 0;
      const auto send = [&] { group->send(sent.data(), bytes, next, {lane}); };
      if (first) send();
      other_way->barrier({*second});
      group->receive(received.data(), bytes, last, {lane});
      if (!first) send();
      lane.synchronize();
      second->synchronize();
      EXPECT_TRUE(received == bytes_of_rank(last, 1, bytes)) << bytes << " bytes on rank " << world.rank();
    }
  });
}

// Of a size that a signed 32-bit number can't hold; off by default for its memory.
TEST(GlooRankTest, DISABLED_MoreThanTwoGiB) {
  on_our_rank([](Communicator& world, Stream& lane) {
    constexpr int64_t kBytes = (int64_t{2} << 30) + (int64_t{100} << 20) + 1;
    std::vector<std::byte> data(kBytes);
    const auto expected = [](int64_t i) { return static_cast<std::byte>((i >> 20) * 7 + i); };
    for (int64_t i = 0; world.rank() == 0 && i < kBytes; ++i) data[i] = expected(i);
    world.broadcast(data.data(), kBytes, 0, {lane});
    lane.synchronize();
    int64_t wrong = 0;
    for (int64_t i = 0; i < kBytes; ++i) wrong += data[i] != expected(i);
    EXPECT_EQ(wrong, 0);
  });
}

TEST(GlooRankTest, APaceIsRefused) {
  on_our_rank([](Communicator& world, Stream& lane) {
    EXPECT_THROW(world.barrier({.stream = lane, .pace = {.at_least_s = 0.1}, .task = "gate"}), BadInput);
  });
}

TEST(GlooRankTest, RanksOfOneMachineTalkOverLoopback) {
  const WorldTopology& topology = this_world->topology();
  EXPECT_EQ(topology.nodes, 1);
  EXPECT_EQ(topology.ranks_per_node, this_world->ranks());
  ASSERT_EQ(topology.addresses.size(), static_cast<size_t>(this_world->ranks()));
  if (this_world->ranks() > 1) {
    EXPECT_EQ(topology.interface, "lo");
    for (const std::string& address : topology.addresses) EXPECT_EQ(address, "127.0.0.1");
  }
  EXPECT_EQ(this_world->local_ranks().size(), 1u);
}

TEST(GlooRankTest, TextsAreGatheredByRankAndRankZerosIsBroadcast) {
  const int rank = this_world->local_ranks().front();
  const auto texts = gather(*this_world, std::vector{std::string(static_cast<size_t>(rank), 'x')});
  ASSERT_EQ(texts.size(), static_cast<size_t>(this_world->ranks()));
  for (size_t from = 0; from < texts.size(); ++from) EXPECT_EQ(texts[from], std::string(from, 'x'));
  EXPECT_EQ(broadcast(*this_world, rank == 0 ? "of rank 0" : "of another"), "of rank 0");
}

}  // namespace

/// GoogleTest's exit code.
int run_tests() {
  GlooWorld world(find_launch({}), {"test", "conformance"});
  this_world = &world;
  return RUN_ALL_TESTS();
}

}  // namespace moe

int main(int count, char** arguments) {
  testing::InitGoogleTest(&count, arguments);
  std::signal(SIGPIPE, SIG_IGN);
  int code = 4;
  try {
    code = moe::run_tests();
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
  }
  std::cout.flush();
  std::_Exit(code);  // without LibTorch's static destructors, which take seconds on a busy machine
}
