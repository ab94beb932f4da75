// What NCCL goes on with in the background, by a stand-in for NCCL that needs no GPU.
#include "moe/comm/nccl/detail/nccl_comm.h"

#include <chrono>
#include <gtest/gtest.h>
#include <thread>

#include "moe/base/check.h"

/// As NCCL's: busy for as many questions after its state, and then done with `work`.
struct ncclComm {
  int questions = 0;
  std::function<void()> work = nullptr;
  bool aborted = false, destroyed = false;
};

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  if (comm->questions > 0 && --comm->questions == 0 && comm->work) comm->work();
  *state = comm->questions > 0 ? ncclInProgress : ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->aborted = true;
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  comm->questions = 2;
  return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  comm->destroyed = comm->questions == 0;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t) { return "an error"; }
const char* ncclGetLastError(ncclComm_t) { return "its cause"; }

namespace moe {
namespace {

constexpr int kForEver = 1 << 30;

nccl::Comm::Make giving(ncclComm& made) {
  return [&made](ncclComm_t* to) {
    *to = &made;
    return ncclSuccess;
  };
}

template <class Body>
std::string failure(Body&& body) {
  try {
    body();
  } catch (const RankFailure& error) {
    return error.what();
  }
  return "none";
}

// As ncclCommSplit of 2.28 does for communicators that don't block.
TEST(NcclCommTest, ASplitThatSaysItIsDoneIsWaitedFor) {
  ncclComm world, part;
  nccl::Comm parent("rank 3", 60), child("rank 3", 60);
  parent.make(giving(world));
  child.make([&](ncclComm_t* made) {
    *made = nullptr;
    parent.issue("split", [&](ncclComm_t comm) {
      comm->questions = 5;
      comm->work = [&part, made] { *made = &part; };
      return ncclSuccess;
    });
    return ncclSuccess;
  });
  ncclComm_t used = nullptr;
  child.issue("count", [&](ncclComm_t comm) {
    used = comm;
    return ncclSuccess;
  });
  EXPECT_EQ(used, &part);
}

TEST(NcclCommTest, WhatIsNotTakenInTimeNamesRankAndOperation) {
  ncclComm world;
  nccl::Comm comm("rank 3", 0.05);
  comm.make(giving(world));
  const auto call = [](ncclComm_t made) {
    made->questions = kForEver;
    return ncclInProgress;
  };
  EXPECT_EQ(failure([&] { comm.issue("'dispatch' (alltoall)", call); }),
            "rank 3 in 'dispatch' (alltoall): timed out after 0.05 s waiting for another rank");
}

TEST(NcclCommTest, AnErrorIsExplained) {
  ncclComm world;
  nccl::Comm comm("rank 3", 60);
  comm.make(giving(world));
  EXPECT_EQ(failure([&] { comm.issue("barrier", [](ncclComm_t) { return ncclSystemError; }); }),
            "rank 3 in barrier: NCCL: an error: its cause");
}

TEST(NcclCommTest, AnAbortByAnotherThreadEndsAWaitAndAllThatFollows) {
  ncclComm world;
  nccl::Comm comm("rank 3", 60);
  comm.make(giving(world));
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    comm.abort("had enough");
  });
  const auto call = [](ncclComm_t made) {
    made->questions = kForEver;
    return ncclInProgress;
  };
  EXPECT_EQ(failure([&] { comm.issue("barrier", call); }), "rank 3 in barrier: had enough");
  other.join();
  EXPECT_TRUE(world.aborted);
  EXPECT_EQ(failure([&] { comm.issue("later", call); }), "rank 3 in later: had enough");
}

TEST(NcclCommTest, WhatIsUnderWayIsFlushedBeforeItIsDestroyed) {
  ncclComm world;
  std::make_unique<nccl::Comm>("rank 3", 60)->make(giving(world));
  EXPECT_TRUE(world.destroyed);
  EXPECT_FALSE(world.aborted);
}

}  // namespace
}  // namespace moe
