#include <algorithm>
#include <cmath>

#include "microbench/kernels.h"
#include "moe/layer/gates/gate.h"
#include "moe/layer/verify.h"
#include "moe/shape/volumes.h"

namespace moe::microbench {
namespace {

std::vector<double> doubles(TensorView t) { return {t.as<float>(), t.as<float>() + t.elements()}; }

// Runs forward and backward of one gate and compares them with autograd's.
class GateBench {
 public:
  GateBench(const KernelSizes& sizes, std::string_view name)
      : rank_(routed_shape(sizes, name, sizes.tokens, sizes.model_dim)),
        routing_(make_routing(rank_)),
        gate_(find_gate(name).make({rank_, {}})),
        hidden_(random_rows({sizes.tokens, sizes.model_dim})),
        d_hidden_({sizes.tokens, sizes.model_dim}, DType::float32),
        d_weight_(random_rows({sizes.tokens, routing_.choices})),
        d_fill_(random_rows({sizes.tokens, routing_.choices})) {
    gate_->forward(hidden_, routing_);
    for (size_t p = 0; p < routing_.row.size(); ++p)
      if (routing_.row[p] == Routing::kDropped) d_weight_.as<float>()[p] = d_fill_.as<float>()[p] = 0;
  }

  const RankShape& rank() const { return rank_; }
  void run() {
    gate_->forward(hidden_, routing_);
    gate_->backward({hidden_, routing_, d_weight_, d_fill_, d_hidden_, 1});
  }
  // Compares the result of one run with the reference. Only valid after a single run, because runs add to d_hidden.
  measure::WrongElements wrong() {
    const std::vector<double> hidden = doubles(hidden_), d_weight = doubles(d_weight_), d_fill = doubles(d_fill_);
    const GateReference expected =
        reference_gate(rank_.shape, {}, {hidden, d_weight, d_fill}, {routing_.expert, tolerance_of(DType::float32)});
    measure::WrongElements wrong;
    for (size_t p = 0; p < routing_.row.size(); ++p)
      if (routing_.expert[p] != expected.expert[p] || (routing_.row[p] < 0) != (expected.row[p] < 0))
        note(fmt::format("pair {}: found expert {} row {}, expected {} {}", p, routing_.expert[p], routing_.row[p],
                         expected.expert[p], expected.row[p]),
             wrong);
    compare("weight", routing_.weight, expected.weight, 0, wrong);
    if (routing_.mixes()) compare("fill", routing_.fill, expected.fill, 0, wrong);
    compare(kInputGradient, d_hidden_, expected.d_hidden, expected.sizes.at(kInputGradient), wrong);
    for (const Parameter& p : gate_->parameters())
      compare("gradient of " + p.name, p.gradient, expected.gradients.at(p.name), expected.sizes.at(p.name), wrong);
    return wrong;
  }
  std::vector<TensorView> written() const {
    std::vector<TensorView> all{routing_.weight, d_hidden_};
    for (const Parameter& p : gate_->parameters()) all.push_back(p.gradient);
    return all;
  }

 private:
  static double norm_of(const std::vector<double>& values) {
    double norm = 0;
    for (const double v : values) norm = std::max(norm, std::abs(v));
    return norm;
  }
  static void note(std::string line, measure::WrongElements& wrong) {
    if (wrong.count++ == 0) wrong.first = std::move(line);
  }
  // Compares a tensor with the reference, except weights of dropped pairs, which are undefined.
  void compare(std::string_view what, TensorView found, const std::vector<double>& expected, double size,
               measure::WrongElements& wrong) const {
    const double tolerance = tolerance_of(DType::float32) * std::max(norm_of(expected), size);
    const bool of_pairs = found.data() == routing_.weight.view().data();
    for (size_t i = 0; i < expected.size(); ++i) {
      if (of_pairs && routing_.row[i] == Routing::kDropped) continue;
      const double value = found.as<float>()[i];
      if (!(std::abs(value - expected[i]) <= tolerance))
        note(fmt::format("{}, element {}: found {}, expected {}", what, i, value, expected[i]), wrong);
    }
  }

  RankShape rank_;
  Routing routing_;
  std::unique_ptr<Gate> gate_;
  Tensor hidden_, d_hidden_, d_weight_, d_fill_;
};

}  // namespace

void gate_kernels(const KernelSizes& sizes, const KernelGroup& group) {
  for (const std::string_view name : gate_names()) {
    GateBench gate(sizes, name);
    measure::Kernel kernel{.name = fmt::format("gate {}", name), .width = sizes.model_dim};
    const RankShape& rank = gate.rank();
    kernel.shape = {{"device", "cpu"},
                    {"dtype", "float32"},
                    {"tokens", sizes.tokens},
                    {"experts", sizes.experts},
                    {"top_k", sizes.top_k}};
    kernel.run = [&] { gate.run(); };
    kernel.check = [&] { return gate.wrong(); };
    kernel.written = gate.written();
    // Factor from `of`, the seconds of one expert with `expert_rows` rows, to the seconds of all experts.
    const double times = static_cast<double>(rank.rows * sizes.experts) / static_cast<double>(sizes.expert_rows);
    kernel.bound = {"the experts' time", {}, [times](double seconds, double of) { return seconds / (of * times); }};
    for (const char* phase : {"forward", "backward"})
      kernel.bound.kernels.push_back(
          measure::Kernel{.name = fmt::format("expert gpt {}", phase), .width = sizes.model_dim}.key());
    group(std::array{std::move(kernel)});
  }
}

}  // namespace moe::microbench
