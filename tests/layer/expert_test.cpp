// Experts alone against their reference graph, sharded over ESP, by chunks of different degree forward and backward.
#include "moe/layer/experts/expert.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "moe/layer/reference/detail/layer_graph.h"
#include "tests/layer/graph_checks.h"

namespace moe {
namespace {

const std::vector<int64_t> kRows{7, 0, 13, 1};  // of each expert

// Whether a backward is in halves, the second of them in the order of chunks or against it.
enum class Halves { none, in_order, reversed };
struct Chunks {
  int forward, backward;
  Halves halves = Halves::none;
};

// Chunk `chunk` of the rows of the local experts, from where they begin.
std::vector<Rows> chunk_of(ShardRange experts, int chunks, int chunk) {
  std::vector<Rows> all;
  int64_t first = 0;
  for (int64_t e = experts.first; e < experts.first + experts.count; ++e) {
    const int64_t rows = kRows[e];
    const Rows part = chunk_rows(rows, chunks, chunk);
    all.push_back({first + part.begin, first + part.end});
    first += rows;
  }
  return all;
}

// Copies the rows of a chunk, packed, from (in) or to their places.
void move_rows(TensorView packed, std::span<const Rows> rows, TensorView placed, bool in) {
  const int64_t width = packed.size(1);
  double* at = packed.as<double>();
  for (const Rows& part : rows) {
    double* place = placed.as<double>() + part.begin * width;
    std::copy_n(in ? place : at, part.count() * width, in ? at : place);
    at += part.count() * width;
  }
}

int64_t count_of(std::span<const Rows> rows) {
  int64_t sum = 0;
  for (const Rows& part : rows) sum += part.count();
  return sum;
}

struct Passed {
  Tensor output, d_input;
};

struct Given {
  const Tensor &x, &d;
};

void backward_in_halves(Expert& expert, ShardRange experts, const Given& given, Chunks chunks, TensorView gradients,
                        Tensor& d_input) {
  const auto& [x, d] = given;
  for (int chunk = 0; chunk < chunks.backward; ++chunk) {
    const auto rows = chunk_of(experts, chunks.backward, chunk);
    const Tensor dx = random_tensor({count_of(rows), x.view().size(1)}, 78);
    expert.backward_inputs({x, rows, d, dx});
    move_rows(dx, rows, d_input, false);
  }
  for (int i = 0; i < chunks.backward; ++i) {
    const int chunk = chunks.halves == Halves::reversed ? chunks.backward - 1 - i : i;
    expert.backward_weights({x, chunk_of(experts, chunks.backward, chunk), d, {}}, gradients,
                            i == 0 ? Into::overwrite : Into::add);
  }
}

Passed pass(Expert& expert, ShardRange experts, const Given& given, Chunks chunks, TensorView gradients) {
  const auto& [x, d] = given;
  const int64_t all = x.view().size(0), width = x.view().size(1);
  Passed passed{Tensor({all, width}, DType::float64), Tensor({all, width}, DType::float64)};
  for (int chunk = 0; chunk < chunks.forward; ++chunk) {
    const auto rows = chunk_of(experts, chunks.forward, chunk);
    const Tensor out = random_tensor({count_of(rows), width}, 77);
    expert.forward(x, rows, out);
    move_rows(out, rows, passed.output, false);
  }
  if (chunks.halves != Halves::none) {
    backward_in_halves(expert, experts, given, chunks, gradients, passed.d_input);
    return passed;
  }
  for (int chunk = 0; chunk < chunks.backward; ++chunk) {
    const auto rows = chunk_of(experts, chunks.backward, chunk);
    const Tensor dy({count_of(rows), width}, DType::float64), dx = random_tensor({count_of(rows), width}, 78);
    move_rows(dy, rows, d, true);
    expert.backward({x, rows, dy, dx}, gradients, chunk == 0 ? Into::overwrite : Into::add);
    move_rows(dx, rows, passed.d_input, false);
  }
  return passed;
}

class ExpertTest : public testing::TestWithParam<Ffn> {
 protected:
  ExpertTest() {
    LayerShape layer{.batch = 1, .seq = 12, .model_dim = width_, .hidden = 12, .heads = 2, .experts = 4, .top_k = 2};
    layer.ffn = GetParam();
    if (in_fp8(layer.ffn)) layer.hidden = 3 * kFp8Block;
    layer.dtype = DType::float64;
    shape_ = complete(layer, {.nodes = 2, .ranks_per_node = 3, .mp = 1, .ep = 2, .esp = 3}, Rounding::ragged);
    weights_ = graph_inputs(shape_, seed_).weights;
    for (const GraphWeight& w : expert_weights(layer)) weights_.at(std::string(w.name)).set_requires_grad(true);
  }
  at::Tensor graph(const std::vector<at::Tensor>& x) const {
    std::vector<at::Tensor> out;
    for (size_t e = 0; e < x.size(); ++e)
      out.push_back(expert_graph(shape_.layer, x[e], weights_, static_cast<int64_t>(e)));
    return at::cat(out);
  }

  const int64_t width_ = in_fp8(GetParam()) ? kFp8Block : 10;
  LayerCase shape_;
  LayerSeed seed_{.seed = 6, .layer = 2};
  GraphWeights weights_;
};

TEST_P(ExpertTest, ShardsAddUpToItsGraphWhateverTheChunks) {
  const Tensor x = random_tensor({21, width_}, 1), d = random_tensor({21, width_}, 2);
  const at::Tensor in = graph_leaf(x), dy = graph_leaf(d).detach();
  const auto parts = in.split_with_sizes(kRows, 0);
  const at::Tensor expected = graph(parts);
  (expected * dy).sum().backward();
  for (const auto& chunks : {Chunks{1, 1},
                             {3, 2},
                             {2, 5},
                             {16, 1},
                             {1, 1, Halves::in_order},
                             {3, 2, Halves::reversed},
                             {2, 5, Halves::in_order},
                             {16, 16, Halves::reversed}})
    for (const int64_t ep : {0, 1}) {
      const int64_t first = ep == 0 ? 0 : 7, count = ep == 0 ? 7 : 14;
      const Tensor mine({count, width_}, DType::float64), dmine({count, width_}, DType::float64);
      std::copy_n(x.view().as<double>() + first * width_, count * width_, mine.view().as<double>());
      std::copy_n(d.view().as<double>() + first * width_, count * width_, dmine.view().as<double>());
      at::Tensor output = at::zeros({count, width_}, at::kDouble), d_input = at::zeros_like(output);
      for (int rank = static_cast<int>(3 * ep); rank < 3 * ep + 3; ++rank) {
        const RankShape shard = rank_shape(shape_, rank);
        const auto expert = make_expert(name_of(GetParam()), {shard, seed_});
        expert->reserve(count);
        const Tensor gradients = random_tensor({expert_gradient_bytes(shape_) / 8}, 4);  // overwritten
        const Passed passed = pass(*expert, shard.experts, {mine, dmine}, chunks, gradients);
        output += graph_leaf(passed.output).detach();
        d_input += graph_leaf(passed.d_input).detach();
        EXPECT_LT(gradient_error(expert->parameters(gradients), weights_), 1e-13);
      }
      EXPECT_LT((output - expected.narrow(0, first, count)).abs().max().item<double>(), 1e-12);
      EXPECT_LT((d_input - in.grad().narrow(0, first, count)).abs().max().item<double>(), 1e-12);
    }
}

class ExactExpertTest : public ExpertTest {};

TEST_P(ExactExpertTest, ItsGraphsGradientsAreCentralDifferences) {
  const at::Tensor in = graph_leaf(random_tensor({21, width_}, 1)), dy = graph_leaf(random_tensor({21, width_}, 2));
  const auto loss = [&] { return (graph(in.split_with_sizes(kRows, 0)) * dy.detach()).sum(); };
  loss().backward();
  EXPECT_LT(difference_error(in, loss), 1e-7);
  for (const GraphWeight& w : expert_weights(shape_.layer))
    EXPECT_LT(difference_error(weights_.at(std::string(w.name)), loss), 1e-7) << w.name;
}

TEST_P(ExpertTest, GradientsAreOneVectorOfThePlannedSize) {
  const RankShape shard = rank_shape(shape_, 4);
  const auto expert = make_expert(name_of(GetParam()), {shard, seed_});
  const Tensor gradients({expert_gradient_bytes(shape_) / 8}, DType::float64);
  const auto* next = gradients.view().as<std::byte>();
  const std::vector<Parameter> all = expert->parameters(gradients);
  for (const Parameter& p : all) {
    EXPECT_EQ(p.gradient.as<std::byte>(), next) << p.name;
    next += p.gradient.bytes();
  }
  EXPECT_EQ(next, gradients.view().as<std::byte>() + gradients.view().bytes());
  EXPECT_EQ(static_cast<int>(all.size()), gemms_of(GetParam()));
}

// Weights that changed between passes are rounded anew, once all rows of a pass were there.
TEST(Fp8Expert, RoundsItsWeightsInEveryPass) {
  LayerShape layer{.batch = 1, .seq = 4, .model_dim = kFp8Block, .hidden = kFp8Block, .heads = 2, .experts = 1};
  layer.top_k = 1;
  layer.ffn = Ffn::mixtral_fp8;
  layer.dtype = DType::float64;
  const RankShape rank = rank_shape(complete(layer, {.nodes = 1, .ranks_per_node = 1}, Rounding::ragged), 0);
  const auto expert = make_expert("mixtral-fp8", {rank, {}});
  expert->reserve(4);
  const Tensor gradients({expert_gradient_bytes(rank.shape) / 8}, DType::float64), x = random_tensor({4, kFp8Block}, 1);
  const Tensor first({1, kFp8Block}, DType::float64), rest({3, kFp8Block}, DType::float64);
  const auto pass = [&] {
    expert->forward(x, std::vector<Rows>{{0, 1}}, first);
    expert->forward(x, std::vector<Rows>{{1, 4}}, rest);
  };
  pass();
  const double before = first.view().as<double>()[0], last = rest.view().as<double>()[0];
  for (const Parameter& p : expert->parameters(gradients))
    if (p.name == kW2)
      for (int64_t i = 0; i < p.value.elements(); ++i) p.value.as<double>()[i] *= 2;
  pass();
  EXPECT_DOUBLE_EQ(first.view().as<double>()[0], 2 * before);
  EXPECT_DOUBLE_EQ(rest.view().as<double>()[0], 2 * last);
}

const auto kName = [](const auto& row) {
  std::string name(name_of(row.param));
  std::ranges::replace(name, '-', '_');
  return name;
};
INSTANTIATE_TEST_SUITE_P(All, ExpertTest, testing::Values(Ffn::gpt, Ffn::mixtral, Ffn::gpt_tanh, Ffn::mixtral_fp8),
                         kName);
INSTANTIATE_TEST_SUITE_P(All, ExactExpertTest, testing::Values(Ffn::gpt, Ffn::mixtral, Ffn::gpt_tanh), kName);

}  // namespace
}  // namespace moe
