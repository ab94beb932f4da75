// Batches served for real: outputs equal those of the layers that no scheduler touches, bit for bit, and all that was
// decided on the way is what the planner foresaw.
#include "moe/layer/served_layers.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <mutex>

#include "moe/base/random.h"
#include "moe/layer/binding.h"
#include "moe/layer/experts/feed_forward.h"
#include "moe/serve/synthetic_routing.h"
#include "moe/tensor/element.h"
#include "tests/layer/local_layers.h"

namespace moe {
namespace {

// max(x W1, 0) W2 by plain loops, so that a row's bits depend on nothing but the row.
template <class T>
class PlainExpert final : public Expert {
 public:
  explicit PlainExpert(const PartSetup& setup)
      : weights_(make_gpt_expert(setup)), m_(setup.rank.model_dim()), h_(setup.rank.hidden.count) {}
  void reserve(int64_t) override {}
  void forward(TensorView input, std::span<const Rows> rows, TensorView output) override {
    const Tensor gradients({static_cast<int64_t>(rows.size()) * 2 * m_ * h_}, input.dtype());
    const std::vector<Parameter> all = weights_->parameters(gradients);
    std::vector<T> hidden(h_);
    T* out = output.as<T>();
    for (size_t e = 0; e < rows.size(); ++e) {
      const T *w1 = all[0].value.as<T>() + static_cast<int64_t>(e) * m_ * h_,
              *w2 = all[1].value.as<T>() + static_cast<int64_t>(e) * m_ * h_;
      for (int64_t row = rows[e].begin; row < rows[e].end; ++row, out += m_) {
        multiply(input.as<T>() + row * m_, m_, w1, h_, hidden.data());
        for (T& x : hidden) x = std::max(T(0), x);
        multiply(hidden.data(), h_, w2, m_, out);
      }
    }
  }
  void backward(const ExpertPass&, TensorView, Into) override {}
  void backward_inputs(const ExpertPass&) override {}
  void backward_weights(const ExpertPass&, TensorView, Into) override {}
  std::vector<Parameter> parameters(TensorView gradients) override { return weights_->parameters(gradients); }

 private:
  static void multiply(const T* x, int64_t inner, const T* w, int64_t outer, T* out) {
    std::fill_n(out, outer, T(0));
    for (int64_t i = 0; i < inner; ++i)
      for (int64_t j = 0; j < outer; ++j) out[j] += x[i] * w[i * outer + j];
  }
  std::unique_ptr<Expert> weights_;
  int64_t m_, h_;
};

Ffn plain_ffn() {
  static const Ffn ffn = register_expert({"plain", "by plain loops", Ffn::gpt, 2}, {.make = [](const PartSetup& setup) {
                                           return make_for<Expert, PlainExpert>(setup.rank.dtype(), setup);
                                         }});
  return ffn;
}

Profile small_profile(int ranks) {
  Profile profile;
  profile.name = "served";
  profile.nodes = 1;
  profile.ranks_per_node = ranks;
  CommRow alltoall;
  alltoall.op = Op::alltoall;
  alltoall.network = Network::intra;
  alltoall.ranks = ranks;
  alltoall.alpha_s = 2e-5;
  alltoall.beta_s_per_byte = 3e-9;
  profile.comm = {alltoall};
  for (const DType dtype : {DType::float32, DType::float64}) {
    ComputeRow gemm;
    gemm.op = Op::gemm;
    gemm.dtype = dtype;
    gemm.alpha_s = 5e-6;
    gemm.beta_s_per_flop = 1e-11;
    profile.compute.push_back(gemm);
  }
  return profile;
}

// Any batches of any layers on 2 to 4 devices.
struct Drawn {
  explicit Drawn(uint64_t number) : number_(number) {
    ranks = 2 + draw(3);
    layers = 2 + draw(3);
    LayerShape layer{.batch = 1 + draw(2), .seq = 1 + draw(24), .model_dim = 8, .hidden = 4 + draw(12), .heads = 2};
    layer.experts = int64_t{ranks} * (1 + draw(3));
    layer.top_k = 1;
    layer.capacity_factor = std::nullopt;
    layer.gate = draw(2) == 0 ? "switch" : "sigmoid";
    layer.order = draw(4) == 0 ? "gshard" : "tutel";
    layer.dtype = draw(2) == 0 ? DType::float32 : DType::float64;
    layer.ffn = std::array{plain_ffn(), plain_ffn(), Ffn::gpt, Ffn::mixtral}[draw(4)];
    if (layer.ffn != plain_ffn()) layer.hidden = 8 * (1 + draw(4));  // else MKL's rows differ by their places
    layer.norm = std::array{Norm::by_ffn, Norm::none, Norm::post_layernorm}[draw(3)];
    layer.residual = draw(3) > 0;
    layer.bias = draw(2) > 0 && layer.ffn != plain_ffn();
    ParallelShape p{.nodes = 1, .ranks_per_node = ranks};
    p.mp = p.esp = 1;
    p.ep = ranks;
    shape = complete(layer, p, Rounding::ragged);
    setup.max_experts = static_cast<int>(layer.experts) / ranks + draw(3);
    setup.list_length = 1 + draw(2);
    seed.seed = number;
    const SyntheticRouting source{.layers = layers,
                                  .experts = static_cast<int>(layer.experts),
                                  .skew = 1.0 * draw(4),
                                  .correlation = 0.25 * draw(5),
                                  .drift = 0.5 * draw(3),
                                  .seed = number};
    const int64_t tokens = layer.batch * layer.seq * ranks;
    paths = std::make_unique<PathProfile>(generate_routing(source, 4, tokens), 1 + draw(std::min(2, layers - 1)));
    trace = generate_routing(source, 1, tokens, 4);
    variant = serving_variants()[draw(5)];
    if (variant.balanced) trace = balanced_routing(trace);
  }
  int draw(int below) {
    return static_cast<int>(random_bits(number_, random_stream_id("served cases"), draws_++) %
                            static_cast<uint64_t>(below));
  }
  std::vector<std::vector<int32_t>> wanted(int rank) const {
    std::vector<std::vector<int32_t>> of_rank;
    const auto own = shape.layer.batch * shape.layer.seq;
    for (const std::vector<int32_t>& layer : trace.choices)
      of_rank.emplace_back(layer.begin() + rank * own, layer.begin() + (rank + 1) * own);
    return of_rank;
  }

  int ranks = 2, layers = 2;
  LayerCase shape;
  ServingSetup setup;
  LayerSeed seed;
  std::unique_ptr<PathProfile> paths;
  RoutingTrace trace;
  ServingVariant variant;

 private:
  uint64_t number_, draws_ = 0;
};

using Bytes = std::vector<std::byte>;
Bytes bytes_of_tensor(TensorView t) { return {t.as<std::byte>(), t.as<std::byte>() + t.bytes()}; }

struct Served {
  std::vector<Bytes> outputs;  // by rank
  ServedCounts counts;
  std::vector<ExpertPlacement> placements;  // by layer, on rank 0
  int64_t held_experts = 0;                 // the most of all ranks
};

Served serve(const Drawn& c, const Plan& plan, int batches = 1, bool preset = true) {
  LocalWorld world(c.ranks);
  const HostExperts host(c.shape, c.layers, c.seed);
  Served served;
  served.outputs.resize(c.ranks);
  std::mutex mutex;
  world.run([&](int rank) {
    const auto world_comm = world.communicator(rank);
    ServedLayers layers({.shape = c.shape,
                         .layers = c.layers,
                         .seed = c.seed,
                         .host = host,
                         .paths = c.paths.get(),
                         .max_experts = c.setup.max_experts,
                         .list_length = c.setup.list_length},
                        *world_comm);
    ServingBinding binding(layers, plan);
    const auto device = make_cpu_device();
    Executor executor(*device, plan.structure);
    for (int batch = 0; batch < batches; ++batch) {
      if (preset)
        layers.begin_batch(c.wanted(rank));
      else
        layers.begin_batch();
      executor.run(binding);
    }
    served.outputs[rank] = bytes_of_tensor(layers.output());
    const std::lock_guard lock(mutex);
    served.held_experts = std::max(served.held_experts, layers.held_expert_count());
    if (rank != 0) return;
    served.counts = layers.counts();
    for (int layer = 0; layer < c.layers; ++layer) served.placements.push_back(layers.placement(layer));
  });
  return served;
}

// The same layers, each by the binding that trains it, one after the other.
std::vector<Bytes> unscheduled(const Drawn& c, bool preset = true) {
  std::vector<Bytes> outputs;
  for (int number = 0; number < c.layers; ++number) {
    LayerSeed seed = c.seed;
    seed.layer = static_cast<uint64_t>(number);
    const LocalLayers layer(c.shape, seed);
    const Plan plan = plan_for(c.shape, "ds-moe", 1, 1);
    for (int rank = 0; rank < c.ranks; ++rank) {
      MoeLayer& own = *layer.ranks()[rank];
      own.begin_step(0, false);
      own.state().routing.preset = preset;
      if (preset) own.state().routing.expert = c.wanted(rank)[number];
      if (number > 0) std::memcpy(own.input().data(), outputs[rank].data(), outputs[rank].size());
    }
    layer.forward(plan);
    outputs.clear();
    for (MoeLayer* rank : layer.ranks()) outputs.push_back(bytes_of_tensor(rank->output()));
  }
  return outputs;
}

double largest_difference(const Drawn& c, const std::vector<Bytes>& found, const std::vector<Bytes>& expected) {
  double worst = 0, scale = 1e-30;
  with_element(c.shape.layer.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (size_t r = 0; r < found.size(); ++r)
      for (size_t i = 0; i + sizeof(T) <= found[r].size(); i += sizeof(T)) {
        T a = 0, b = 0;
        std::memcpy(&a, found[r].data() + i, sizeof a);
        std::memcpy(&b, expected[r].data() + i, sizeof b);
        worst = std::max(worst, std::abs(static_cast<double>(a) - static_cast<double>(b)));
        scale = std::max(scale, std::abs(static_cast<double>(b)));
      }
  });
  return worst / scale;
}

std::string text_of(const ExpertPlacement& placement) {
  std::string text;
  for (const auto& device : placement.devices) {
    text += '|';
    for (const HostedExpert& hosted : device) text += fmt::format(" {}:{:.6f}", hosted.expert, hosted.share);
  }
  return text;
}

TEST(ServedLayers, OutputsEqualTheUnscheduledLayersBitForBit) {
  constexpr int kCases = 200;
  int replicas = 0, packed = 0, empty_experts = 0, empty_devices = 0, placed_again = 0, stood = 0, plain = 0;
  for (uint64_t number = 1; number <= kCases; ++number) {
    const Drawn c(number);
    SCOPED_TRACE(fmt::format("case {}: {} on {} ranks, {} layers, {}", number, describe(c.shape.layer), c.ranks,
                             c.layers, c.variant.name));
    const Profile profile = small_profile(c.ranks);
    const LayerPricer pricer(profile, c.shape);
    Serving serving(pricer, c.setup);
    ServingResult foreseen;
    const PlannedBatch batch = serving.plan(c.variant, c.trace, c.paths.get(), 0, foreseen);
    const Served served = serve(c, *batch.plan);
    EXPECT_EQ(served.counts.estimated, foreseen.estimated);
    EXPECT_EQ(served.counts.right_lists, foreseen.right_lists);
    EXPECT_EQ(served.counts.placed_again, foreseen.placed_again);
    for (int layer = 0; layer < c.layers; ++layer) {
      const PlacedLayer& planned = batch.layers[layer];
      EXPECT_EQ(text_of(served.placements[layer]), text_of(planned.placement)) << layer;
      std::vector<int> copies(c.shape.layer.experts);
      for (const auto& device : planned.placement.devices) {
        empty_devices += device.empty();
        packed += std::ssize(device) > c.shape.layer.experts / c.ranks;
        for (const HostedExpert& hosted : device) ++copies[hosted.expert];
      }
      replicas += std::ranges::any_of(copies, [](int n) { return n > 1; });
      empty_experts += std::ranges::count(c.trace.counts(layer, 0), 0) > 0;
    }
    placed_again += foreseen.placed_again > 0;
    stood += foreseen.estimated > foreseen.placed_again && c.variant.fine_tunes;
    const std::vector<Bytes> expected = unscheduled(c);
    if (c.shape.layer.ffn == plain_ffn()) {
      ++plain;
      EXPECT_TRUE(served.outputs == expected);
      continue;
    }
    // GEMMs round by the shapes of the training's chunks there; the same experts that stay at home are the measure.
    EXPECT_LT(largest_difference(c, served.outputs, expected), c.shape.layer.dtype == DType::float32 ? 2e-5 : 1e-13);
    const Plan uniform = serving_plan(c.shape, std::vector<ServedLayer>(static_cast<size_t>(c.layers)));
    EXPECT_TRUE(served.outputs == serve(c, uniform).outputs);
  }
  for (const int seen : {replicas, packed, empty_experts, placed_again, stood, plain}) EXPECT_GT(seen, 10);
  RecordProperty("cases with an empty device", empty_devices);
}

// A plan may have the tasks for a placement behind every gate, where nobody knows beforehand what gates choose.
TEST(ServedLayers, PlansThatMayPlaceAgainServeWhateverGatesChoose) {
  int again = 0, stood = 0;
  for (uint64_t number = 1000; number < 1040; ++number) {
    Drawn c(number);
    c.shape.layer.ffn = plain_ffn();
    c.shape.layer.bias = false;
    std::vector<ServedLayer> any(c.layers);
    for (int layer = 0; layer < c.layers; ++layer) {
      any[layer].checks = any[layer].places_again = true;
      any[layer].estimates_next = layer + 1 < c.layers && layer + 1 >= c.paths->length();
    }
    const Served served = serve(c, serving_plan(c.shape, any), 2, false);
    EXPECT_EQ(served.outputs, unscheduled(c, false)) << number;
    again += static_cast<int>(served.counts.placed_again);
    stood += static_cast<int>(served.counts.estimated - served.counts.placed_again);
  }
  EXPECT_GT(again, 10);
  EXPECT_GT(stood, 10);
}

TEST(ServedLayers, AWrongForecastIsNamed) {
  for (uint64_t number = 1;; ++number) {
    const Drawn c(number);
    const Profile profile = small_profile(c.ranks);
    const LayerPricer pricer(profile, c.shape);
    Serving serving(pricer, c.setup);
    ServingResult foreseen;
    const ServingVariant& lina = serving_variants()[2];
    serving.plan(lina, c.trace, c.paths.get(), 0, foreseen);
    if (foreseen.placed_again == 0) continue;
    std::vector<ServedLayer> never(c.layers);
    for (int layer = c.paths->length(); layer < c.layers; ++layer) {
      never[layer].checks = true;
      never[layer - 1].estimates_next = true;
    }
    EXPECT_THROW(serve(c, serving_plan(c.shape, never)), WrongResult);
    return;
  }
}

// All tokens want one expert: every device gets a replica, copied from the host but at home.
TEST(ServedLayers, WeightsAreSwappedFromTheHost) {
  Drawn c(3);
  for (auto& layer : c.trace.choices) std::ranges::fill(layer, 0);
  const std::vector<ServedLayer> behind(c.layers, {.checks = true, .places_again = true});
  const Served served = serve(c, serving_plan(c.shape, behind)),
               stays = serve(c, serving_plan(c.shape, std::vector<ServedLayer>(static_cast<size_t>(c.layers))));
  EXPECT_EQ(served.outputs, stays.outputs);
  const ExpertPlacement home = uniform_placement(static_cast<int>(c.shape.layer.experts), c.ranks);
  int most = 0;
  for (const ExpertPlacement& placement : served.placements)
    for (int device = 0; device < c.ranks; ++device) {
      EXPECT_TRUE(placement.holds(device, 0));
      int swapped = 0;
      for (const HostedExpert& hosted : placement.devices[device]) swapped += !home.holds(device, hosted.expert);
      most = std::max(most, swapped);
    }
  EXPECT_GT(most, 0);
  EXPECT_EQ(served.held_experts - stays.held_experts, 2 * most);  // two layers' at once
}

TEST(ServedLayers, RefusesWhatItCannotServe) {
  const auto refuses = [](const auto& change) {
    Drawn c(1);
    change(c.shape.layer);
    EXPECT_THROW(serve(c, serving_plan(Drawn(1).shape, std::vector<ServedLayer>(2))), Unsupported);
  };
  refuses([](LayerShape& layer) { layer.hook = "bf16"; });
  refuses([](LayerShape& layer) { layer.dispatcher = "2dh"; });
  refuses([](LayerShape& layer) { layer.top_k = 2; });
}

}  // namespace
}  // namespace moe
