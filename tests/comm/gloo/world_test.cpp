// Worlds whose ranks are threads here: what doesn't need processes of their own.
#include <csignal>
#include <cstdlib>
#include <gtest/gtest.h>
#include <thread>

#include "moe/base/check.h"
#include "moe/comm/gloo/detail/failure_detector.h"
#include "moe/comm/gloo/gloo_world.h"
#include "moe/comm/store/store.h"
#include "tests/base/scratch.h"

namespace moe {
namespace {

/// Gloo writes to connections that a dying rank closes.
const auto kPipeHandler = std::signal(SIGPIPE, SIG_IGN);

/// What each rank's own thread threw, or "none".
std::vector<std::string> run_ranks(int ranks, Launch launch, const std::function<void(GlooWorld&, int)>& body) {
  std::vector<std::string> errors(ranks, "none");
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    launch.rank = rank;
    launch.ranks = ranks;
    threads.emplace_back([&, launch, rank] {
      try {
        GlooWorld world(launch, {"1.0", "test"}, 10);
        body(world, rank);
      } catch (const std::exception& error) {
        errors[rank] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

/// A store that none of the ranks serves, as torchrun's agent does.
class ServedTest : public testing::Test {
 protected:
  Launch launch(const std::string& run) const {
    Launch launch;
    launch.host = server_.address().host;
    launch.port = server_.address().port;
    launch.served = true;
    launch.run = run;
    return launch;
  }
  const store::Server server_{{"127.0.0.1", 0}};
};

void sum_of_all(GlooWorld& world, int expected) {
  world.run([&](int rank) {
    const auto device = make_cpu_device();
    const auto lane = device->make_stream("lane");
    float one = 1;
    world.communicator(rank)->allreduce(&one, 1, DType::float32, {*lane});
    lane->synchronize();
    EXPECT_EQ(one, static_cast<float>(expected));
  });
}

TEST_F(ServedTest, RestartedRunsMeetInTheSameStore) {
  for (const std::string run : {"moetune/run/0/", "moetune/run/1/"})
    for (const std::string& error : run_ranks(3, launch(run), [](GlooWorld&world, int) { sum_of_all(world, 3); }))
      EXPECT_EQ(error, "none");
}

TEST_F(ServedTest, WhatEveryRankRefusesEndsNothing) {
  const auto errors = run_ranks(3, launch("run/"), [](GlooWorld& world, int) {
    for (int i = 0; i < 2; ++i) {
      EXPECT_THROW(world.run([](int) { throw Unsupported("no such plan"); }), Unsupported);
      EXPECT_EQ(world.failure(), "");
      sum_of_all(world, 3);
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "none");
}

TEST_F(ServedTest, WhatOneRankRefusesEndsAll) {
  const auto errors = run_ranks(3, launch("run/"), [](GlooWorld& world, int rank) {
    world.run([&](int) {
      if (rank == 1) throw Unsupported("no such plan");
    });
    sum_of_all(world, 3);
  });
  EXPECT_EQ(errors[1], "no such plan");
  for (const size_t other : {0, 2})
    EXPECT_NE(errors[other].find("rank 1 failed: no such plan"), std::string::npos) << errors[other];
}

TEST_F(ServedTest, AMachineMayStandForSeveralNodes) {
  Launch two = launch("run/");
  two.ranks_per_node = 2;
  const auto errors = run_ranks(4, two, [](GlooWorld& world, int) {
    EXPECT_EQ(world.topology().nodes, 2);
    EXPECT_EQ(world.topology().ranks_per_node, 2);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "none");
  two.run = "another/";
  for (const std::string& error : run_ranks(3, two, [](GlooWorld&, int) { FAIL(); }))
    EXPECT_NE(error.find("a multiple of ranks_per_node 2"), std::string::npos) << error;
}

TEST_F(ServedTest, AnUnknownInterfaceIsRefusedWithThoseThereAre) {
  setenv("GLOO_SOCKET_IFNAME", "nosuch0", 1);
  for (const std::string& error : run_ranks(2, launch("run/"), [](GlooWorld&, int) { FAIL(); }))
    for (const std::string part : {"GLOO_SOCKET_IFNAME", "'nosuch0'", "lo"})
      EXPECT_NE(error.find(part), std::string::npos) << error;
  setenv("GLOO_SOCKET_IFNAME", "lo", 1);
  const auto errors = run_ranks(2, launch("again/"), [](GlooWorld& world, int) {
    EXPECT_EQ(world.topology().interface, "lo");
    sum_of_all(world, 2);
  });
  unsetenv("GLOO_SOCKET_IFNAME");
  for (const std::string& error : errors) EXPECT_EQ(error, "none");
}

TEST_F(ServedTest, AbortEndsWhatOthersWaitForAndEverythingLater) {
  const auto errors = run_ranks(3, launch("run/"), [](GlooWorld& world, int) {
    world.run([&](int rank) {
      const auto group = world.communicator(rank)->split(0, 0);
      const auto device = make_cpu_device();
      const auto lane = device->make_stream("lane");
      if (rank == 1) group->abort("had enough");
      group->barrier({.stream = *lane, .task = "long wait"});
      EXPECT_THROW(lane->synchronize(), RankFailure);
      EXPECT_THROW(group->split(0, 0), RankFailure);
      const auto later = device->make_stream("later");
      world.communicator(rank)->barrier({.stream = *later, .task = "later"});
      later->synchronize();
    });
  });
  for (size_t rank = 0; rank < errors.size(); ++rank)
    EXPECT_EQ(errors[rank], fmt::format("rank {} in 'later' (barrier): rank 1 aborted: had enough", rank));
}

TEST_F(ServedTest, AFailureBesideTheWorldIsHeardOfByAll) {
  const auto errors = run_ranks(3, launch("run/"), [](GlooWorld& world, int rank) {
    if (rank == 1) world.fail("NCCL gave up");
    while (world.failure().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(world.failure(), "NCCL gave up");
    EXPECT_THROW(world.communicator(world.local_ranks().front())->split(0, 0), RankFailure);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "none");
}

TEST_F(ServedTest, ASkippedOperationEndsTheOthersWithItsCause) {
  const auto errors = run_ranks(2, launch("run/"), [](GlooWorld& world, int) {
    world.run([&](int rank) {
      const auto device = make_cpu_device();
      const auto lane = device->make_stream("lane");
      if (rank == 1) lane->launch([](void*) { throw std::logic_error("broken expert"); });
      world.communicator(rank)->barrier({.stream = *lane, .task = "combine"});
      lane->synchronize();
    });
  });
  EXPECT_EQ(errors[0], "rank 0 in 'combine' (barrier): rank 1 failed: broken expert");
  EXPECT_EQ(errors[1], "broken expert");
}

// A rank 0 that joins where one waits already may be its next life, and the others' with it; the earlier one gives up.
TEST_F(ServedTest, TwoProcessesOfOneRankAreRefused) {
  Launch same = launch("run/");
  same.ranks = 2;
  const auto join = [&](double start_s) { GlooWorld(same, {"1.0", "test"}, 1, start_s); };
  std::thread first([&] { EXPECT_THROW(join(60), BadInput); });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_THROW(join(1), RankFailure) << "rank 1 is missing";
  first.join();
}

// Another program may end a connection by writing to a port: the peer still beats. A peer that does not is gone.
TEST(FailureDetectorTest, ABrokenConnectionBlamesNoRankThatBeats) {
  for (const bool peer_lives : {true, false}) {
    const store::Server server({"127.0.0.1", 0});
    const auto detector = [&](int rank) {
      auto connected = std::make_shared<store::Store>(server.address(), "run/", "rank 0", 5);
      for (const int each : {0, 1}) gloo::FailureDetector::announce(*connected, each);
      return std::make_unique<gloo::FailureDetector>(
          connected, gloo::FailureDetector::Rank{.rank = rank,
                                                 .ranks = 2,
                                                 .timeout_s = 2,
                                                 .waits = [] { return std::vector<gloo::FailureDetector::Wait>(); },
                                                 .abort = [] {},
                                                 .line = [](const std::string& reason) { return reason; }});
    };
    auto peer = peer_lives ? detector(1) : nullptr;
    const auto ours = detector(0);
    ours->suspect({"rank 1 closed its connections", 1}, 0);
    EXPECT_EQ(ours->verdict(), peer_lives ? "a connection between rank 0 and rank 1 broke, and both run: another "
                                            "program may have reached its port"
                                          : "rank 1 closed its connections");
    if (peer) peer->verdict();  // one that leaves before it hears of a failure ends this process
    peer.reset();               // else ours waits for it
  }
}

// Rank 2 of 3 never comes. The other two end after the time-out, and rank 0 waits for nobody else.
TEST(StartTest, EndsWithinTheTimeoutWhereARankStaysAway) {
  const Scratch scratch;
  Launch launch;
  launch.port_file = scratch.path("port");
  launch.ranks = 3;
  std::vector<std::string> errors(2);
  std::vector<std::thread> threads;
  const double begin_s = now_s();
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&errors, launch, rank]() mutable {
      launch.rank = rank;
      try {
        GlooWorld(launch, {"1.0", "test"}, 1.5, 1.5);
      } catch (const RankFailure& failure) {
        errors[rank] = failure.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(now_s() - begin_s, 4);
  for (size_t rank = 0; rank < 2; ++rank)
    EXPECT_EQ(errors[rank], fmt::format("rank {} in start: rank 2 did not join the run within 1.5 s", rank));
}

TEST(AloneTest, OneRankNeedsNoStore) {
  GlooWorld world({}, {"1.0", "test"});
  sum_of_all(world, 1);
  EXPECT_EQ(world.local_ranks(), std::vector<int>{0});
  world.communicator(0)->abort("told to");
  EXPECT_THROW(world.communicator(0)->split(0, 0), RankFailure);
  EXPECT_THROW(world.communicator(1), BadInput);
}

}  // namespace
}  // namespace moe
