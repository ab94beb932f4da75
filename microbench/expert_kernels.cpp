#include <array>

#include "microbench/kernels.h"
#include "microbench/plain_expert.h"
#include "moe/layer/experts/expert.h"
#include "moe/tensor/cpu/math.h"

namespace moe::microbench {
namespace {

// The GEMMs of one expert without the operations between them, each computed by LibTorch's mm.
struct Gemms {
  Gemms(const KernelSizes& s, int inputs)
      : first(inputs),
        x(random_rows({s.expert_rows, s.model_dim})),
        hidden(random_rows({s.expert_rows, s.hidden})),
        w1(random_rows({s.model_dim, s.hidden})),
        w2(random_rows({s.hidden, s.model_dim})),
        y(random_rows({s.expert_rows, s.model_dim})),
        d_x({s.expert_rows, s.model_dim}, DType::float32),
        d_w1({s.model_dim, s.hidden}, DType::float32),
        d_w2({s.hidden, s.model_dim}, DType::float32) {}
  void forward() const {
    for (int i = 0; i < first; ++i) gemm(matrix(x), matrix(w1), matrix(hidden));
    gemm(matrix(hidden), matrix(w2), matrix(y));
  }
  void backward() const {
    gemm(matrix(y), transpose(matrix(w2)), matrix(hidden));
    gemm(transpose(matrix(hidden)), matrix(y), matrix(d_w2));
    for (int i = 0; i < first; ++i) {
      gemm(transpose(matrix(x)), matrix(hidden), matrix(d_w1));
      gemm(matrix(hidden), transpose(matrix(w1)), matrix(d_x));
    }
  }
  measure::WrongElements wrong_forward() const {
    return first_wrong({product(matrix(x), matrix(w1), hidden), product(matrix(hidden), matrix(w2), y)});
  }
  measure::WrongElements wrong_backward() const {
    return first_wrong(
        {product(matrix(y), transpose(matrix(w2)), hidden), product(transpose(matrix(hidden)), matrix(y), d_w2),
         product(transpose(matrix(x)), matrix(hidden), d_w1), product(matrix(hidden), transpose(matrix(w1)), d_x)});
  }
  static measure::WrongElements product(const Matrix& a, const Matrix& b, const Tensor& out) {
    return measure::wrong_products(a, b, matrix(out), DType::float32);
  }
  static measure::WrongElements first_wrong(std::initializer_list<measure::WrongElements> all) {
    for (const measure::WrongElements& wrong : all)
      if (wrong.count > 0) return wrong;
    return {};
  }
  int first;  // number of GEMMs before the activation: 1, or 2 for gated experts
  Tensor x, hidden, w1, w2, y, d_x, d_w1, d_w2;
};

PlainExpert plain_expert(Expert& expert, TensorView gradients, const Matrix& x, const Matrix& d_y) {
  std::map<std::string, PlainExpert::Weight> weights;
  for (const Parameter& p : expert.parameters(gradients)) {
    const auto one = [&](TensorView t) { return matrix(t.part(0, {p.axes[1].count, p.axes[2].count})); };
    weights[p.name] = {one(p.value), one(p.gradient)};
  }
  return {std::move(weights), x, d_y};
}

void bench_expert(const KernelSizes& sizes, Ffn ffn, const KernelGroup& group) {
  LayerShape layer{.batch = 1, .seq = sizes.expert_rows, .model_dim = sizes.model_dim, .hidden = sizes.hidden};
  layer.heads = layer.experts = layer.top_k = 1;
  layer.ffn = ffn;
  const RankShape rank = rank_shape(complete(layer, {}, Rounding::ragged), 0);
  const auto expert = make_expert(name_of(ffn), {rank, {}});
  expert->reserve(sizes.expert_rows);
  const Gemms gemms(sizes, gemms_of(ffn) - 1);
  const std::array rows{Rows{0, sizes.expert_rows}};
  const Tensor x = random_rows({sizes.expert_rows, sizes.model_dim}),
               d_y = random_rows({sizes.expert_rows, sizes.model_dim});
  const Tensor y({sizes.expert_rows, sizes.model_dim}, DType::float32);
  const Tensor d_x({sizes.expert_rows, sizes.model_dim}, DType::float32);
  const Tensor gradients({gemms_of(ffn) * sizes.model_dim * sizes.hidden}, DType::float32);
  const PlainExpert plain = plain_expert(*expert, gradients, matrix(x), matrix(d_y));
  expert->forward(x, rows, y);  // a backward needs a forward before it
  const auto made = [&](std::string_view what) {
    measure::Kernel kernel{.name = fmt::format("expert {} {}", name_of(ffn), what), .width = sizes.model_dim};
    kernel.shape = {{"device", "cpu"}, {"dtype", "float32"}, {"hidden", sizes.hidden}, {"rows", sizes.expert_rows}};
    return kernel;
  };
  const auto kernel = [&](std::string_view what, auto run, auto check, std::vector<TensorView> written) {
    measure::Kernel k = made(what);
    k.run = run;
    k.check = check;
    k.written = std::move(written);
    k.bound = {"its GEMMs by at::mm", {made(fmt::format("{} GEMMs", what)).key()}, [](double seconds, double of) {
                 return of / seconds;
               }};
    return k;
  };
  const auto alone = [&](std::string_view what, auto run, auto check, std::vector<TensorView> written) {
    measure::Kernel k = kernel(what, run, check, std::move(written));
    k.bound = {};
    return k;
  };
  const std::array kernels{
      kernel(
          "forward", [&] { expert->forward(x, rows, y); }, [&] { return plain.wrong_output(matrix(y)); }, {y}),
      alone(
          "forward GEMMs", [&] { gemms.forward(); }, [&] { return gemms.wrong_forward(); }, {gemms.hidden, gemms.y}),
      kernel(
          "backward",
          [&] {
            expert->backward({x, rows, d_y, d_x}, gradients, Into::overwrite);
          },
          [&] { return plain.wrong_gradients(matrix(d_x)); }, {d_x, gradients}),
      alone(
          "backward GEMMs", [&] { gemms.backward(); }, [&] { return gemms.wrong_backward(); },
          {gemms.hidden, gemms.d_w1, gemms.d_w2, gemms.d_x})};
  group(kernels);
}

}  // namespace

void expert_kernels(const KernelSizes& sizes, const KernelGroup& group) {
  for (const Ffn ffn : {Ffn::gpt, Ffn::mixtral}) bench_expert(sizes, ffn, group);
}

}  // namespace moe::microbench
