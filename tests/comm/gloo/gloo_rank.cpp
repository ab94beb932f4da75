// One rank of a world of processes: every one runs the same tests in the same order. Started N times by ranks.py, or by
// a launcher.
#include <gtest/gtest.h>
#include <iostream>

#include "moe/base/check.h"
#include "moe/comm/gloo/gloo_world.h"
#include "tests/comm/communicator_conformance.h"
#include "tests/comm/gloo/this_world.h"

namespace moe {
namespace {

CommunicatorFactory gloo_factory() {
  return {"gloo", [](int ranks, double, const std::function<void(Communicator&, Device&)>& body) {
            GlooWorld& world = this_world();
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

// The only world of this process; main's.
namespace {
GlooWorld* the_world = nullptr;
}
GlooWorld& this_world() { return *the_world; }

}  // namespace moe

int main(int count, char** arguments) {
  testing::InitGoogleTest(&count, arguments);
  try {
    const moe::Launch launch = moe::find_launch({});
    moe::GlooWorld world(launch, {"test", "conformance"});
    moe::the_world = &world;
    const int code = RUN_ALL_TESTS();
    return code;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 4;
  }
}
