// What only many runs show: delays change no bit and hang nothing, results stay the same for hundreds of passes, copies
// are needed where they are planned, and ranks that disagree end with an error.
#include <chrono>
#include <cstring>
#include <gtest/gtest.h>
#include <iostream>
#include <thread>

#include "moe/base/random.h"
#include "moe/layer/binding.h"
#include "tests/layer/layer_space.h"
#include "tests/layer/local_layers.h"

namespace moe {
namespace {

// Every task is issued late, and its lane works late, by a random time.
class Delayed final : public Binding {
 public:
  Delayed(Binding& binding, uint64_t seed) : binding_(binding), seed_(seed) {}
  void issue(const Task& task, Stream& stream, Pace pace) override {
    wait(2 * static_cast<uint64_t>(task.id));
    stream.launch([this, id = static_cast<uint64_t>(task.id)](void*) { wait(2 * id + 1); });
    binding_.issue(task, stream, pace);
  }
  void finish_task(const Task& task, Stream& stream) override { binding_.finish_task(task, stream); }

 private:
  void wait(uint64_t index) const {
    const uint64_t draw = random_bits(seed_, 1, index);
    if (draw % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(draw / 3 % 300));
  }
  Binding& binding_;
  uint64_t seed_;
};

// Leaves out the tasks of one kind.
class Without final : public Binding {
 public:
  Without(Binding& binding, TaskKind kind) : binding_(binding), kind_(kind) {}
  void issue(const Task& task, Stream& stream, Pace pace) override {
    if (task.kind != kind_) binding_.issue(task, stream, pace);
  }
  void finish_task(const Task& task, Stream& stream) override { binding_.finish_task(task, stream); }

 private:
  Binding& binding_;
  TaskKind kind_;
};

// Every bit that the ranks' results have.
std::vector<std::byte> bits_of(const LocalLayers& layers) {
  std::vector<std::byte> bits;
  const auto add = [&](TensorView t) { bits.insert(bits.end(), t.as<std::byte>(), t.as<std::byte>() + t.bytes()); };
  for (MoeLayer* rank : layers.ranks()) {
    add(rank->output());
    add(rank->input_gradient());
    for (const Parameter& p : rank->parameters()) add(p.gradient);
  }
  return bits;
}

TEST(Endurance, RandomDelaysHangNothingAndChangeNoBit) {
  const auto points = layer_space::covering(0, 21, [](const layer_space::Point& point) {
    try {
      return layer_space::shape_of(point).parallel.ranks() <= 4;
    } catch (const BadInput&) {
      return false;
    }
  });
  int ran = 0;
  for (size_t i = 0; i < points.size() && ran < 200; ++i) {
    SCOPED_TRACE(layer_space::text_of(points[i]));
    const layer_space::DrawnLayer c = layer_space::make_case(points[i], i + 1);
    try {
      LocalLayers layers(c.shape, c.seed, c.plan.structure->flow);
      layers.run(c.plan);
      const std::vector<std::byte> once = bits_of(layers);
      layers.poison();
      layers.run(c.plan, 2, [&](Binding& binding, int rank) {
        return std::make_unique<Delayed>(binding, 100 * i + static_cast<uint64_t>(rank));
      });
      EXPECT_EQ(bits_of(layers), once);
      ++ran;
    } catch (const Unsupported&) {  // unequal blocks and a dispatcher of equal ones
    }
  }
  EXPECT_EQ(ran, 200);
}

LayerCase small_case(std::optional<double> factor) {
  LayerShape layer{.batch = 2, .seq = 16, .model_dim = 16, .hidden = 24, .heads = 4, .experts = 4, .top_k = 2};
  layer.dtype = DType::float64;
  layer.capacity_factor = factor;
  return complete(layer, {.nodes = 2, .ranks_per_node = 2}, Rounding::ragged);
}

TEST(Endurance, FiveHundredPassesGiveTheSameBits) {
  for (const std::optional<double> factor : {std::optional<double>(1.2), std::optional<double>()})
    for (const std::string_view name : {"fsmoe", "pipemoe+lina", "lina-baseline", "lina-partition", "parm-s1",
                                        "parm-s2", "monta-o3", "monta-baseline", "ds-moe-replicated"}) {
      SCOPED_TRACE(name);
      const LayerCase shape = small_case(factor);
      const Schedule& schedule = find_schedule(name);
      LocalLayers layers(shape, {.seed = 3}, schedule.flow);
      const Plan plan = plan_for(shape, name, schedule.degrees == DegreePolicy::one ? 1 : 3,
                                 schedule.degrees == DegreePolicy::one ? 1 : 3);
      layers.run(plan);
      const std::vector<std::byte> once = bits_of(layers);
      layers.poison();
      layers.run(plan, 500);
      EXPECT_EQ(bits_of(layers), once);
    }
}

TEST(Endurance, WithoutTheReLayoutCopiesChunksAreWrong) {
  const LayerCase shape = small_case(1.2);
  const LayerSeed seed{.seed = 5};
  const LayerReference reference = reference_layer(shape, seed);
  for (const TaskKind kind : {TaskKind::copy, TaskKind::home_copy})
    for (const int degree : {1, 3}) {
      LocalLayers layers(shape, seed, Flow::dropped);
      layers.run(plan_for(shape, "monta-o2", degree, degree), 2,
                 [&](Binding& binding, int) { return std::make_unique<Without>(binding, kind); });
      double worst = 0;
      for (const TensorError& e : layer_errors(layers.ranks(), reference)) worst = std::max(worst, e.error);
      if (degree == 1)
        EXPECT_LE(worst, 1e-10) << "one chunk is laid out right as it arrives";
      else
        EXPECT_GT(worst, 0.01);
    }
}

TEST(Endurance, RanksThatDisagreeOnCapacityEndWithAnError) {
  const LayerCase some = small_case(1.2), more = small_case(2.4);
  LocalWorld world(4, 5);
  std::string complaint = "none";
  try {
    world.run([&](int rank) {
      const LayerCase& mine = rank == 2 ? more : some;
      const auto device = make_cpu_device();
      const auto world_comm = world.communicator(rank);
      MoeLayer layer(rank_shape(mine, rank), {}, LayerComms::split(*world_comm, mine.parallel));
      const Plan plan = plan_for(mine, "fsmoe", 2, 2);
      LayerBinding binding(layer, plan);
      Executor(*device, plan.structure).run(binding);
    });
  } catch (const RankFailure& failure) {
    complaint = failure.what();
  }
  EXPECT_NE(complaint.find("disagree"), std::string::npos) << complaint;
  EXPECT_NE(complaint.find("forward"), std::string::npos) << complaint;
}

}  // namespace
}  // namespace moe
