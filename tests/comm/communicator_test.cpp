#include "moe/comm/communicator.h"

#include <gtest/gtest.h>

#include "moe/base/check.h"
#include "moe/comm/local/local_world.h"

namespace moe {
namespace {

/// Calls `operation` on rank 1 of 3 and returns why it is refused, or "none".
std::string refusal(const std::function<void(Communicator&, CommCall)>& operation) {
  LocalWorld world(3);
  const auto group = world.communicator(1);
  const auto device = make_cpu_device();
  const auto lane = device->make_stream("lane");
  try {
    operation(*group, {.stream = *lane, .task = "gate"});
  } catch (const BadInput& error) {
    return error.what();
  }
  return "none";
}

TEST(Communicator, RefusalsNameOperationTaskAndBothOperands) {
  char data[8] = {};
  EXPECT_EQ(refusal([&](Communicator& group, CommCall call) { group.alltoall(data, data, -2, call); }),
            "alltoall 'gate': found size -2, expected 0 or more");
  EXPECT_EQ(refusal([&](Communicator& group, CommCall call) {
              group.allgatherv(data, data, {1, 2}, call);
            }),
            "allgatherv 'gate': found 2 blocks, expected one for each of 3 ranks");
  EXPECT_EQ(refusal([&](Communicator& group, CommCall call) {
              group.alltoallv(data, {1, 2, 1}, data, {1, 1, 1}, call);
            }),
            "alltoallv 'gate': rank 1 sends itself 2 bytes, expects 1");
  EXPECT_EQ(refusal([&](Communicator& group, CommCall call) { group.broadcast(data, 8, 3, call); }),
            "broadcast 'gate': found root 3, expected one of 3 ranks");
  EXPECT_EQ(refusal([&](Communicator& group, CommCall call) { group.send(data, 8, 1, call); }),
            "send 'gate': rank 1 found peer 1, expected another one of 3 ranks");
}

}  // namespace
}  // namespace moe
