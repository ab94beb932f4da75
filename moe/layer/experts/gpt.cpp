#include "moe/layer/experts/gpt.h"

#include "moe/layer/cpu/math.h"
#include "moe/layer/tensor.h"

namespace moe {
namespace {

class GptExpert final : public Expert {
 public:
  explicit GptExpert(const ExpertSetup& setup)
      : experts_(setup.rank.experts), hidden_(setup.rank.hidden), model_dim_(setup.rank.model_dim()) {
    const DType dtype = setup.rank.dtype();
    const int64_t size = experts_.count * model_dim_ * hidden_.count;
    for (Tensor* t : {&weights_, &d_weights_}) *t = Tensor({2 * size}, dtype);
    const auto weights = parameters();
    fill_weight(weights[0], model_dim_, setup.seed);
    fill_weight(weights[1], hidden_.total, setup.seed);
  }

  void reserve(int64_t rows) override {
    if (before_.view().rank() > 0 && before_.view().size(0) >= rows) return;
    for (Tensor* t : {&before_, &after_, &d_hidden_}) *t = Tensor({rows, hidden_.count}, weights_.view().dtype());
  }

  void forward(TensorView input, std::span<const Rows> rows, TensorView output) override {
    Rows out;
    for (int64_t e = 0; e < experts_.count; ++e) {
      const Rows in = rows[static_cast<size_t>(e)];
      out = {out.end, out.end + in.count()};
      gemm(matrix(rows_of(input, in)), matrix(w1(weights_, e)), matrix(rows_of(before_, in)));
      gelu(rows_of(before_, in), rows_of(after_, in));
      gemm(matrix(rows_of(after_, in)), matrix(w2(weights_, e)), matrix(rows_of(output, out)));
    }
  }

  void backward(TensorView input, std::span<const Rows> rows, TensorView d_output, TensorView d_input,
                bool first_chunk) override {
    const Into into = first_chunk ? Into::overwrite : Into::add;
    Rows out;
    for (int64_t e = 0; e < experts_.count; ++e) {
      const Rows in = rows[static_cast<size_t>(e)];
      out = {out.end, out.end + in.count()};
      const Matrix dy = matrix(rows_of(d_output, out));
      const TensorView d_hidden = rows_of(d_hidden_, {0, in.count()});
      gemm(dy, transpose(matrix(w2(weights_, e))), matrix(d_hidden));
      gemm(transpose(matrix(rows_of(after_, in))), dy, matrix(w2(d_weights_, e)), into);
      gelu_backward(rows_of(before_, in), d_hidden, d_hidden);
      gemm(transpose(matrix(rows_of(input, in))), matrix(d_hidden), matrix(w1(d_weights_, e)), into);
      gemm(matrix(d_hidden), transpose(matrix(w1(weights_, e))), matrix(rows_of(d_input, out)));
    }
  }

  std::vector<Parameter> parameters() override {
    const Share width{0, model_dim_, model_dim_};
    const int64_t size = experts_.count * model_dim_ * hidden_.count;
    const auto first = [&](const Tensor& t) { return t.view().part(0, {experts_.count, model_dim_, hidden_.count}); };
    const auto second = [&](const Tensor& t) {
      return t.view().part(size, {experts_.count, hidden_.count, model_dim_});
    };
    return {{std::string(kW1), {experts_, width, hidden_}, first(weights_), first(d_weights_), SummedOver::edp},
            {std::string(kW2), {experts_, hidden_, width}, second(weights_), second(d_weights_), SummedOver::edp}};
  }

  TensorView gradients() override { return d_weights_; }

 private:
  static TensorView rows_of(TensorView t, Rows rows) {
    return t.part(rows.begin * t.size(1), {rows.count(), t.size(1)});
  }
  TensorView w1(TensorView all, int64_t e) const {
    return all.part(e * model_dim_ * hidden_.count, {model_dim_, hidden_.count});
  }
  TensorView w2(TensorView all, int64_t e) const {
    return all.part((experts_.count + e) * model_dim_ * hidden_.count, {hidden_.count, model_dim_});
  }

  Share experts_, hidden_;
  int64_t model_dim_;
  Tensor weights_, d_weights_;        // all W1 (El, M, H / N_ESP), then all W2 (El, H / N_ESP, M)
  Tensor before_, after_, d_hidden_;  // (rows, H / N_ESP): stored around gelu; of one expert's chunk
};

}  // namespace

std::unique_ptr<Expert> make_gpt_expert(const ExpertSetup& setup) { return std::make_unique<GptExpert>(setup); }

}  // namespace moe
