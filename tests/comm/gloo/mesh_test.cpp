// Both members of a mesh in one process.
#include "moe/comm/gloo/detail/mesh.h"

#include <array>
#include <filesystem>
#include <gtest/gtest.h>
#include <memory>
#include <sched.h>
#include <string>
#include <thread>
#include <vector>

namespace moe::gloo {
namespace {

int threads_of_policy(int policy) {
  int threads = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
    threads += sched_getscheduler(std::stoi(task.path().filename())) == policy;
  return threads;
}

template <class Work>
void on_both(Work work) {
  std::vector<std::thread> members;
  for (int member = 0; member < 2; ++member) members.emplace_back([=] { work(member); });
  for (std::thread& each : members) each.join();
}

bool may_be_batch() {
  int policy = 0;
  std::thread([&] {
    const sched_param no_priority{};
    sched_setscheduler(0, SCHED_BATCH, &no_priority);
    policy = sched_getscheduler(0);
  }).join();
  return policy == SCHED_BATCH && sched_getscheduler(0) == SCHED_OTHER;
}

TEST(Mesh, MovesWhileItsOwnThreadsNeverPreemptASender) {
  if (!may_be_batch()) GTEST_SKIP() << "the system refuses SCHED_BATCH, or all threads have it";
  const store::Server server({"127.0.0.1", 0});
  const auto store = std::make_shared<store::Store>(server.address(), "mesh", "the server", 10.0);
  const int before = threads_of_policy(SCHED_BATCH);
  std::array<std::unique_ptr<Mesh>, 2> meshes;
  std::array<int, 2> policies{}, received{};
  on_both([&](int member) {
    meshes[member] = std::make_unique<Mesh>(Rendezvous{store, "pair", 10, [] { return false; }},
                                            Mesh::Member{member, 2, "127.0.0.1"});
    policies[member] = sched_getscheduler(0);
  });
  EXPECT_EQ(policies, (std::array{SCHED_OTHER, SCHED_OTHER})) << "who made a mesh stays as it was";
  EXPECT_GE(threads_of_policy(SCHED_BATCH) - before, 2) << "a thread a mesh";
  on_both([&](int member) {
    int sent = 7 + member;
    const std::array messages{
        Message{1 - member, false, &received[member], sizeof(int)},
        Message{1 - member, true, &sent, sizeof(int)},
    };
    EXPECT_EQ(meshes[member]->exchange(messages, 0).end, Mesh::End::done);
  });
  EXPECT_EQ(received, (std::array{8, 7}));
}

}  // namespace
}  // namespace moe::gloo
