#include <array>
#include <gtest/gtest.h>

#include "commands/shared/record_files.h"
#include "moe/base/check.h"
#include "moe/base/random.h"

namespace moe::commands {
namespace {

constexpr uint64_t kCases = 2000;

// A layer and groups at random; most do not divide each other.
LayerCase drawn(uint64_t index) {
  uint64_t stream = 0;
  const auto below = [&](uint64_t n) { return random_bits(7, stream++, index) % n; };
  const auto one_of = [&](const auto& values) { return values[below(values.size())]; };
  LayerShape l;
  l.batch = static_cast<int64_t>(1 + below(5));
  l.seq = static_cast<int64_t>(64 << below(6));
  l.model_dim = static_cast<int64_t>(64 << below(5));
  l.hidden = static_cast<int64_t>(64 << below(6));
  l.shared_hidden = one_of(std::array{0, 64, 4096});
  l.heads = static_cast<int64_t>(1 << below(5));
  l.kv_heads = static_cast<int64_t>(below(2)) * (1 << below(3));
  l.head_dim = one_of(std::array{0, 24, 128});
  l.rope_theta = one_of(std::array{0.0, 10000.0});
  l.experts = static_cast<int64_t>(1 << below(6));
  l.top_k = static_cast<int64_t>(1 + below(4));
  l.node_limit = one_of(std::array{0, 2, 4});
  if (l.node_limit > 0) l.router_groups = one_of(std::array{0, 4, 8});
  l.capacity_factor = std::array<std::optional<double>, 3>{std::nullopt, 1.2, 1.0 / 3}[below(3)];
  l.ffn = one_of(std::array{Ffn::gpt, Ffn::mixtral, Ffn::gpt_tanh});
  l.norm = one_of(std::array{Norm::by_ffn, Norm::none, Norm::layernorm, Norm::rmsnorm, Norm::post_layernorm});
  l.residual = below(2) == 0;
  l.aux_loss = one_of(std::array{0.0, 0.01});
  l.z_loss = one_of(std::array{0.0, 1e-3});
  l.dtype = one_of(std::array{DType::float32, DType::bfloat16});
  l.gate = one_of(std::array{"gshard", "sigmoid"});
  l.causal = below(2) == 0;
  l.window = l.causal ? one_of(std::array{0, 48}) : 0;
  l.bias = below(2) == 0;
  if (below(4) == 0) {
    l.kv_lora_rank = 64;
    l.q_lora_rank = one_of(std::array{0, 96});
    l.qk_nope_head_dim = 32;
    l.qk_rope_head_dim = 16;
    l.v_head_dim = 24;
  }
  ParallelShape p;
  p.nodes = 1 << below(4);
  p.ranks_per_node = 1 << below(4);
  p.mp = static_cast<int>(below(2)) * (1 << below(3));
  p.ep = static_cast<int>(below(2)) * (1 << below(4));
  p.esp = static_cast<int>(below(2)) * (1 << below(3));
  p.pp = 1 << below(2);
  p.ep_inside = below(2) == 0;
  p.zero = static_cast<int>(below(2));
  p.recompute = one_of(std::array{Recompute::none, Recompute::selective});
  return complete(l, p, one_of(std::array{Rounding::ragged, Rounding::tutel, Rounding::lcm}));
}

TEST(RecordedLayer, ComesBackFromItsParameters) {
  int came_back = 0;
  for (uint64_t i = 0; i < kCases; ++i) {
    LayerCase shape;
    try {
      shape = drawn(i);
    } catch (const BadInput&) {
      continue;
    }
    EXPECT_EQ(shape_of(parameters_of(shape, "testbed-b", "a layer"), "here"), shape) << describe(shape.layer);
    ++came_back;
  }
  EXPECT_GT(came_back, static_cast<int>(kCases / 10));
}

TEST(RecordedLayer, SizesOfDegreesComeBack) {
  const LayerCase shape = complete({}, {2, 2}, Rounding::ragged);
  for (const DegreeChoice& asked : {DegreeChoice{2, 3}, DegreeChoice{1, 1, 4 << 20, 1 << 16}}) {
    CaseRecord record;
    record.degree_forward = asked.forward;
    record.degree_backward = asked.backward;
    record.parameters = parameters_of(shape, "testbed-b", "a layer", asked);
    const DegreeChoice read = degrees_of(record);
    EXPECT_EQ(read.forward, asked.forward);
    EXPECT_EQ(read.backward, asked.backward);
    EXPECT_EQ(read.micro_op_bytes, asked.micro_op_bytes);
    EXPECT_EQ(read.min_chunk_bytes, asked.min_chunk_bytes);
  }
}

TEST(RecordedLayer, SaysWhatIsMissing) {
  Fields fields = parameters_of(complete({}, {2, 2}, Rounding::ragged), "testbed-b", "a layer");
  Fields without;
  for (const auto& [name, value] : fields)
    if (name != "hidden") without.set(name, value);
  try {
    shape_of(without, "results.jsonl:3");
    FAIL() << "nothing was thrown";
  } catch (const BadInput& error) {
    EXPECT_NE(std::string(error.what()).find("results.jsonl:3: hidden"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace moe::commands
