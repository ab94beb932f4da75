// What the world of processes is made of, each by itself: store, port file, ranking of nodes, liveness.
#include <algorithm>
#include <atomic>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "moe/base/check.h"
#include "moe/comm/gloo/bootstrap.h"
#include "moe/comm/store/bounded_calls.h"
#include "moe/comm/store/liveness.h"
#include "moe/comm/store/port_file.h"
#include "moe/comm/store/socket.h"
#include "moe/comm/store/store.h"

namespace moe {
namespace {

template <class Error>
std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(StoreTest, SetsGetsAddsAndKeepsTheFirst) {
  const store::Server server({"127.0.0.1", 0});
  store::Store one(server.address(), "run/", "rank 0", 5), two(server.address(), "run/", "rank 0", 5),
      other(server.address(), "other/", "rank 0", 5);
  EXPECT_FALSE(two.check({"a"}));
  one.set("a", std::string("1\0\n2", 4));
  one.set("empty", "");
  EXPECT_EQ(two.get_all({"a", "empty"}), (std::vector<std::string>{std::string("1\0\n2", 4), ""}));
  EXPECT_FALSE(other.check({"a"})) << "another run's";
  EXPECT_EQ(one.add("n", 2) + two.add("n", 3), 2 + 5);
  EXPECT_EQ(one.set_first("why", "first"), "first");
  EXPECT_EQ(two.set_first("why", "second"), "first");
}

TEST(StoreTest, WaitingNamesTheFirstMissingKeyAndStopsWhenTold) {
  const store::Server server({"127.0.0.1", 0});
  store::Store store(server.address(), "", "rank 0", 5);
  store.set("a", "");
  const auto never = [] { return false; };
  EXPECT_EQ(store.wait({"a"}, 5, never), std::nullopt);
  EXPECT_EQ(store.wait({"a", "b"}, 0.1, never), 1u);
  const double begin = now_s();
  EXPECT_EQ(store.wait({"a", "b"}, 60, [] { return true; }), 1u);
  EXPECT_LT(now_s() - begin, 5);
  std::thread later([&] { store.set("b", ""); });
  EXPECT_EQ(store.wait({"a", "b"}, 5, never), std::nullopt) << "others may use it meanwhile";
  later.join();
}

TEST(StoreTest, AServerThatIsGoneIsNamed) {
  auto server = std::make_unique<store::Server>(store::Address{"127.0.0.1", 0});
  store::Store store(server->address(), "", "rank 0", 5);
  const store::Address address = server->address();
  server.reset();
  EXPECT_EQ(error_of<store::Lost>([&] { store.get("a"); }), "rank 0 closed its connections");
  EXPECT_NE(
      error_of<store::Lost>([&] { store::Store(address, "", "rank 0", 0.3); }).find("rank 0 has not opened its store"),
      std::string::npos);
}

TEST(StoreTest, ASilentServerIsLostAfterTheTimeout) {
  store::Listener mute = store::listen_on({"127.0.0.1", 0});  // accepts, and never answers
  const double begin = now_s();
  const std::string error = error_of<store::Lost>([&] { store::Store({"127.0.0.1", mute.port}, "", "rank 0", 0.5); });
  EXPECT_NE(error.find("rank 0"), std::string::npos) << error;
  EXPECT_LT(now_s() - begin, 5);
}

TEST(StoreTest, ServesOnItsAddressAloneAndRefusesATakenPort) {
  const store::Server server({"127.0.0.1", 0});
  EXPECT_FALSE(store::wait_for_listener({"127.0.0.2", server.address().port}, now_s() + 0.2))
      << "another address of ours";
  const std::string error = error_of<BadInput>([&] { const store::Server second(server.address()); });
  EXPECT_NE(error.find(fmt::format("127.0.0.1:{}", server.address().port)), std::string::npos) << error;
}

TEST(StoreTest, PacksTexts) {
  const std::vector<std::string> texts{"", "1:2", std::string("\0\n", 2), "tail"};
  EXPECT_EQ(store::unpack(store::pack(texts)), texts);
  for (const std::string broken : {"x", "3:ab", "3", ":ab"}) EXPECT_THROW(store::unpack(broken), RankFailure) << broken;
}

TEST(BoundedCallsTest, ACallThatNeverReturnsIsLeftBehind) {
  const auto release = std::make_shared<std::atomic<bool>>(false);
  {
    store::BoundedCalls calls;
    int ran = 0;
    EXPECT_TRUE(calls.run([&] { ++ran; }, 5));
    EXPECT_THROW(calls.run([] { throw std::logic_error("of the call"); }, 5), std::logic_error);
    const double begin = now_s();
    EXPECT_FALSE(calls.run(
        [release] {
          while (!*release) std::this_thread::yield();
        },
        0.2));
    EXPECT_FALSE(calls.run([] {}, 60)) << "all later calls are lost too";
    EXPECT_LT(now_s() - begin, 5);
    EXPECT_EQ(ran, 1);
  }
  *release = true;
}

TEST(SilenceTest, CountsOnlyWhileListenedTo) {
  store::Liveness liveness(0.2);
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  liveness.note(0);
  EXPECT_FALSE(liveness.timed_out()) << "we weren't there";
  for (int i = 0; i < 30 && !liveness.timed_out(); ++i) {
    std::this_thread::sleep_for(liveness.step());
    liveness.note(0);
  }
  EXPECT_TRUE(liveness.timed_out());
  liveness.note(1);
  EXPECT_FALSE(liveness.timed_out());
}

class PortFileTest : public testing::Test {
 protected:
  PortFileTest() { std::filesystem::remove(path_); }
  ~PortFileTest() override { std::filesystem::remove(path_); }

  void write(const std::string& text, mode_t mode = 0600) const {
    std::ofstream(path_) << text;
    chmod(path_.c_str(), mode);
  }
  bool found() const {
    return error_of<RankFailure>([&] { store::wait_for_port(path_, 0.05); }) == "none";
  }

  const std::string path_ = testing::TempDir() + "moetune-test-" + std::to_string(getpid()) + ".port";
};

TEST_F(PortFileTest, IsReadWhileItsMakerKeepsItAndGoneAfterwards) {
  {
    const store::PortFile file(path_, 4711);
    EXPECT_EQ(store::wait_for_port(path_, 1), 4711);
    struct stat status {};
    ASSERT_EQ(stat(path_.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u);
    EXPECT_THROW(store::PortFile(path_, 1), BadInput) << "another run that is alive";
  }
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_NE(error_of<RankFailure>([&] { store::wait_for_port(path_, 0.05); }).find(path_), std::string::npos);
}

TEST_F(PortFileTest, WhatADeadProcessLeftNeitherFoolsNorHinders) {
  const pid_t child = fork();
  if (child == 0) {
    new store::PortFile(path_, 1);
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  ASSERT_TRUE(std::filesystem::exists(path_));
  EXPECT_FALSE(found());
  const store::PortFile file(path_, 4711);
  EXPECT_EQ(store::wait_for_port(path_, 1), 4711);
}

TEST_F(PortFileTest, ANumberThatNowNamesAnotherProcessIsNotItsMaker) {
  write(fmt::format("{} 1 4711\n", getpid()));
  EXPECT_FALSE(found());
}

TEST_F(PortFileTest, WhatOthersMayReadOrIsHalfWrittenOrALinkIsIgnored) {
  const std::string whole = [&] {
    const store::PortFile file(path_, 4711);
    std::string line;
    std::getline(std::ifstream(path_), line);
    return line;
  }();
  write(whole + "\n");
  EXPECT_TRUE(found());
  write(whole);
  EXPECT_FALSE(found()) << "no end of line";
  write(whole + "\n", 0644);
  EXPECT_FALSE(found()) << "readable by others";
  std::filesystem::remove(path_);
  const std::string target = path_ + ".target";
  std::ofstream(target) << whole << "\n";
  chmod(target.c_str(), 0600);
  std::filesystem::create_symlink(target, path_);
  EXPECT_FALSE(found()) << "a link";
  std::filesystem::remove(target);
}

std::vector<gloo::PeerInfo> peers_of(const std::vector<std::string>& machines) {
  std::vector<gloo::PeerInfo> all;
  for (const auto& machine : machines) all.push_back({"1", "job", "0", "host-" + machine, machine});
  return all;
}

TEST(RankingTest, RanksOfAMachineBecomeNeighboursInOrderOfAppearance) {
  const gloo::Ranking ranking = gloo::rank_nodes(peers_of({"b", "a", "a", "b"}), 0);
  EXPECT_EQ(ranking.world_rank, (std::vector<int>{0, 2, 3, 1}));
  EXPECT_EQ(ranking.nodes, 2);
  EXPECT_EQ(ranking.ranks_per_node, 2);
  EXPECT_FALSE(ranking.one_machine);
}

TEST(RankingTest, AMachineMayStandForSeveralNodes) {
  const gloo::Ranking ranking = gloo::rank_nodes(peers_of({"a", "a", "a", "a"}), 2);
  EXPECT_EQ(ranking.nodes, 2);
  EXPECT_EQ(ranking.ranks_per_node, 2);
  EXPECT_TRUE(ranking.one_machine);
  EXPECT_EQ(gloo::rank_nodes(peers_of({"a", "b", "a", "b", "a", "a"}), 2).world_rank,
            (std::vector<int>{0, 4, 1, 5, 2, 3}));
}

TEST(RankingTest, UnequalNodesAreNamed) {
  const std::string error = error_of<BadInput>([] { gloo::rank_nodes(peers_of({"a", "a", "b"}), 0); });
  EXPECT_NE(error.find("host-a holds 2, host-b holds 1"), std::string::npos) << error;
  EXPECT_THROW(gloo::rank_nodes(peers_of({"a", "a", "a"}), 2), BadInput);
}

TEST(InterfacesTest, LoopbackIsThereAndLeadsToItself) {
  const auto all = store::interfaces();
  EXPECT_TRUE(std::ranges::any_of(all, [](const store::Interface& each) { return each.loopback; }));
  EXPECT_EQ(store::address_towards({"127.0.0.1", 1}), "127.0.0.1");
}

}  // namespace
}  // namespace moe
