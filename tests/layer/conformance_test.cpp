// Every gate, order, dispatcher, expert, schedule and parallel shape with every other: outputs, dX, every weight's
// gradient, the auxiliary losses and the reduced dense gradients agree with the autograd reference in float64;
// on the CPU, and by the kernels of a GPU.
//
// `--sample=N` runs N points of the space spread over the covering set; without it all of them run.
#include <gtest/gtest.h>
#include <iostream>
#include <map>
#include <set>

#include "tests/layer/conformance_device.h"
#include "tests/layer/layer_space.h"

namespace moe {
namespace {

size_t sample = 0;               // 0: all
constexpr size_t kMin = 2500;    // of which 2000 must run
constexpr size_t kHasAll = 100;  // a sample of so many has every schedule
constexpr uint64_t kSeed = 7;

struct Met {
  int64_t ran = 0, dropped = 0, idle = 0;
  double worst = 0;
  std::map<std::string, int64_t> unsupported;  // by reason
  std::set<std::string> schedules;             // that ran
};

// The same reason for many points is told once.
std::string without_numbers(std::string text) {
  for (char& c : text)
    if (std::isdigit(static_cast<unsigned char>(c)) != 0) c = '#';
  return text;
}

bool possible(const layer_space::Point& point, Met& met) {
  try {
    layer_space::shape_of(point);
    return true;
  } catch (const BadInput& error) {
    ++met.unsupported[without_numbers(error.what())];
  }
  return false;
}

void prove(const layer_space::DrawnLayer& c, Met& met) {
  LocalLayers layers(c.shape, c.seed, c.plan.structure->flow, conformance_device());
  layers.poison();
  layers.run(c.plan);
  const LayerReference reference = reference_layer(c.shape, c.seed);
  for (const TensorError& e : layer_errors(layers.ranks(), reference)) {
    EXPECT_LE(e.error, tolerance_of(DType::float64)) << e.tensor;
    met.worst = std::max(met.worst, e.error);
  }
  for (const MoeLayer* rank : layers.ranks())
    EXPECT_NEAR(rank->auxiliary_loss(), reference.auxiliary, 1e-10 * std::max(1.0, reference.auxiliary));
  ++met.ran;
  met.schedules.insert(c.plan.schedule);
  met.dropped += layers.dropped() > 0;
  met.idle += layers.idle_experts() > 0;
}

TEST(LayerConformance, EveryPairOfPartsAgreesWithTheReference) {
  Met met;
  const auto points = layer_space::covering(kMin, kSeed, [&](const auto& point) { return possible(point, met); });
  int failures = 0;
  const size_t step = sample == 0 ? 1 : std::max<size_t>(1, points.size() / sample);
  for (size_t i = 0; i < points.size() && (sample == 0 || static_cast<size_t>(met.ran) < sample); i += step) {
    SCOPED_TRACE(layer_space::text_of(points[i]));
    try {
      prove(layer_space::make_case(points[i], i + 1), met);
    } catch (const Unsupported& error) {
      ++met.unsupported[without_numbers(error.what())];
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    if (testing::Test::HasFailure() && ++failures == 12) break;
  }
  std::cout << fmt::format(
      "{} of {} points ran, worst error {:.2e} of the largest value; {} with drops, {} with idle experts\n", met.ran,
      points.size(), met.worst, met.dropped, met.idle);
  for (const auto& [reason, count] : met.unsupported)
    std::cout << fmt::format("unsupported, {} draws: {}\n", count, reason);
  EXPECT_GE(met.ran, sample == 0 ? 2000 : static_cast<int64_t>(sample) * 3 / 4);
  const bool has_all = sample == 0 || sample >= kHasAll;
  for (const Schedule& schedule : schedules())
    EXPECT_TRUE(!has_all || !schedule.variants.empty() || met.schedules.contains(std::string(schedule.name)))
        << schedule.name;
  EXPECT_GT(met.dropped, 0);
  EXPECT_GT(met.idle, 0);
}

}  // namespace
}  // namespace moe

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i)
    if (std::string_view(argv[i]).starts_with("--sample=")) moe::sample = std::stoul(argv[i] + 9);
  if (const std::string missing = moe::conformance_device_missing(); !missing.empty()) {
    std::puts(missing.c_str());
    return 77;  // CTest skips it
  }
  return RUN_ALL_TESTS();
}
