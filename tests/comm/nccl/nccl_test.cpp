// NCCL with ranks that are threads, one GPU each; up to four on one GPU, for correctness alone, where NCCL is 2.30 or
// later (cmake/nccl_for_one_gpu.sh builds one).
#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <nccl.h>
#include <thread>

#include "moe/base/check.h"
#include "moe/comm/nccl/nccl_world.h"
#include "moe/comm/nccl/own_gpus.h"
#include "moe/device/device.h"
#include "tests/comm/communicator_conformance.h"

namespace moe {
namespace {

/// Where the ranks of one test meet.
class Board {
 public:
  void set(const std::string& key, const std::string& value) {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
  }
  std::string get(const std::string& key) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return values_.contains(key); });
    return values_[key];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

/// Between GPUs of one process NCCL would reach into the tests' buffers, but those of a GPU's memory pool are not open
/// to the others. Ranks that are processes pass theirs through memory of NCCL's own.
const bool kNoDirectAccess = setenv("NCCL_P2P_DIRECT_DISABLE", "1", 0) == 0;
/// Kernels of several communicators run in the order of their issue.
const bool kImplicitOrder = setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0) == 0;

/// NCCL before 2.30 doesn't know it.
const bool kSharedGpus = setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0) == 0;

int nccl_version() {
  int version = 0;
  ncclGetVersion(&version);
  return version;
}

/// Returns why so many ranks can't run here; empty: they can.
std::string refusal(int ranks) {
  constexpr int kMostOnOneGpu = 4, kShares = 23000;
  if (ranks <= gpu_count()) return {};
  const std::string found = fmt::format("{} ranks on {} GPUs", ranks, gpu_count());
  if (nccl_version() < kShares) return found + "; NCCL before 2.30 has one rank a GPU (cmake/nccl_for_one_gpu.sh)";
  return may_share_gpus() && ranks <= kMostOnOneGpu * gpu_count() ? "" : found;
}

using Body = std::function<void(World& world, int rank)>;

/// body on a thread and with a world for each rank; rethrows what one throws.
void on_ranks(int ranks, double timeout_s, const Body& body) {
  Board board;
  std::vector<std::exception_ptr> errors(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        const auto world =
            make_nccl_world({.rank = rank,
                             .size = ranks,
                             .local_rank = rank,
                             .topology = {1, ranks, {}, {}},
                             .set = [&](const std::string& key, const std::string& value) { board.set(key, value); },
                             .get = [&](const std::string& key) { return board.get(key); },
                             .timeout_s = timeout_s});
        world->run([&](int here) { body(*world, here); });
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

void run_nccl(int ranks, double timeout_s, const std::function<void(Communicator&, Device&)>& body) {
  if (const std::string why = refusal(ranks); !why.empty()) GTEST_SKIP() << why;
  on_ranks(ranks, timeout_s, [&](World& world, int rank) {
    const auto device = make_device(DeviceKind::cuda, rank);
    body(*world.communicator(rank), *device);
  });
}

INSTANTIATE_TEST_SUITE_P(Nccl, CommunicatorConformance,
                         testing::Combine(testing::Values(CommunicatorFactory{"nccl", run_nccl, 50e-6, 1e-6, 8}),
                                          testing::Values(1, 2, 4, 8)),
                         CommunicatorConformance::name);

TEST(NcclWorldTest, SaysWhatItsResultsDependOn) {
  on_ranks(1, 60, [](World& world, int) {
    const auto settings = world.settings();
    for (const char* name : {"nccl_version", "nccl_alltoall", "nccl_max_ctas"})
      EXPECT_TRUE(std::ranges::any_of(settings, [&](const auto& each) { return each.first == name; })) << name;
    EXPECT_EQ(world.backend(), "nccl");
  });
}

TEST(NcclWorldTest, StreamsOfTheCpuPassTheHostsMemory) {
  on_ranks(1, 60, [](World& world, int rank) {
    const auto device = make_cpu_device();
    const auto lane = device->make_stream("lane");
    const auto all = world.communicator(rank);
    const std::vector<int> ours{7, 8, 9};
    std::vector<int> gathered(3);
    std::vector<float> sum{1.5f, 2.5f};
    all->allgather(ours.data(), gathered.data(), 3 * sizeof(int), {*lane});
    all->allreduce(sum.data(), 2, DType::float32, {*lane});
    all->barrier({*lane});
    lane->synchronize();
    EXPECT_EQ(gathered, ours);
    EXPECT_EQ(sum, (std::vector<float>{1.5f, 2.5f}));
  });
}

TEST(NcclWorldTest, RefusesPaces) {
  on_ranks(1, 60, [](World& world, int rank) {
    const auto device = make_device(DeviceKind::cuda);
    const auto lane = device->make_stream("lane");
    EXPECT_THROW(world.communicator(rank)->barrier({*lane, {.at_least_s = 1}}), BadInput);
  });
}

// Much of it is NCCL's own thread, which calls that don't block need: it bounds how small an alpha can be measured.
TEST(NcclWorldTest, SaysWhatItCostsToIssueAnOperation) {
  if (const std::string why = refusal(2); !why.empty()) GTEST_SKIP() << why;
  constexpr int kOperations = 200;
  on_ranks(2, 60, [](World& world, int rank) {
    const auto device = make_device(DeviceKind::cuda, rank);
    const auto lane = device->make_stream("lane");
    const auto all = world.communicator(rank);
    std::vector<double> took;
    for (int i = 0; i < kOperations; ++i) {
      const double begin = now_s();
      all->barrier({*lane});
      took.push_back(now_s() - begin);
    }
    lane->synchronize();
    std::sort(took.begin(), took.end());
    std::printf("to issue an NCCL operation: %.1f us in the median\n", took[kOperations / 2] * 1e6);
    EXPECT_LT(took[kOperations / 2], 200e-6);
  });
}

TEST(NcclWorldTest, ARankThatStaysAwayEndsTheOthersAndIsNamedByTheirTask) {
  if (const std::string why = refusal(2); !why.empty()) GTEST_SKIP() << why;
  std::string failure = "none";
  on_ranks(2, 10, [&](World& world, int rank) {  // NCCL itself needs seconds to connect
    const auto device = make_device(DeviceKind::cuda, rank);
    const auto lane = device->make_stream("lane");
    const auto all = world.communicator(rank);
    all->barrier({*lane});
    lane->synchronize();
    if (rank == 1) return std::this_thread::sleep_for(std::chrono::seconds(15));
    all->barrier({.stream = *lane, .task = "backward combine"});
    failure = failure_of(*lane);
  });
  EXPECT_NE(failure.find("rank 0 in 'backward combine' (barrier)"), std::string::npos) << failure;
}

}  // namespace
}  // namespace moe
