// One rank of a world of processes: every one runs the same tests in the same order. Started N times by ranks.py, or by
// a launcher.
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
  int code = 4;
  try {
    code = moe::run_tests();
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
  }
  std::cout.flush();
  std::_Exit(code);  // without LibTorch's static destructors, which take seconds on a busy machine
}
