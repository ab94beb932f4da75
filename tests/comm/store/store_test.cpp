#include "moe/comm/store/store.h"

#include <algorithm>
#include <atomic>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <thread>

#include "moe/base/check.h"
#include "moe/comm/store/socket.h"
#include "tests/base/error_of.h"

namespace moe {
namespace {

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
  EXPECT_EQ(error_of<store::StoreLost>([&] { store.get("a"); }), "rank 0 closed its connections");
  EXPECT_NE(error_of<store::StoreLost>([&] {
              store::Store(address, "", "rank 0", 0.3);
            }).find("rank 0 did not open its store"),
            std::string::npos);
}

TEST(StoreTest, ASilentServerIsLostAfterTheTimeout) {
  store::Listener mute = store::listen_on({"127.0.0.1", 0});  // accepts, and never answers
  const double begin = now_s();
  const std::string error = error_of<store::StoreLost>([&] {
    store::Store({"127.0.0.1", mute.port}, "", "rank 0", 0.5);
  });
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

TEST(ReasonTest, HasNoPlaceInTheLibrariesSources) {
  const auto reason = [](const char* what) { return store::reason_of(std::runtime_error(what)); };
  rlimit before{}, few{}, many{};
  getrlimit(RLIMIT_NOFILE, &before);
  few = many = before;
  few.rlim_cur = 64;
  many.rlim_cur = std::min<rlim_t>(before.rlim_max, 1024);
  setrlimit(RLIMIT_NOFILE, &many);
  EXPECT_EQ(reason("[enforce fail at /gloo/tcp/loop.cc:47] rv != -1. -1 vs -1. pipe: Too many open files"),
            "pipe: Too many open files");
  EXPECT_EQ(reason("Failed to init uv loop\nException raised from Daemon at /c10d/Backend.cpp:1255\nframe #0: f()"),
            "Failed to init uv loop");
  setrlimit(RLIMIT_NOFILE, &few);
  EXPECT_EQ(reason("no loop"), "no loop; found a limit of 64 open files, expected at least 256 (ulimit -n)");
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST(LivenessTest, CountsOnlyWhileListenedTo) {
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

TEST(InterfacesTest, LoopbackIsThereAndLeadsToItself) {
  const auto all = store::interfaces();
  EXPECT_TRUE(std::ranges::any_of(all, [](const store::Interface& each) { return each.loopback; }));
  EXPECT_EQ(store::address_towards({"127.0.0.1", 1}), "127.0.0.1");
}

}  // namespace
}  // namespace moe
