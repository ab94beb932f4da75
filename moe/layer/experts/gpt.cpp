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
    const int64_t rows = setup.rank.rows * setup.rank.sources();
    for (Tensor* t : {&w1_, &d_w1_}) *t = Tensor({experts_.count, model_dim_, hidden_.count}, dtype);
    for (Tensor* t : {&w2_, &d_w2_}) *t = Tensor({experts_.count, hidden_.count, model_dim_}, dtype);
    for (Tensor* t : {&before_, &after_}) *t = Tensor({experts_.count, rows, hidden_.count}, dtype);
    d_hidden_ = Tensor({rows, hidden_.count}, dtype);
    const auto weights = parameters();
    fill_weight(weights[0], model_dim_, setup.seed);
    fill_weight(weights[1], hidden_.total, setup.seed);
  }

  void forward(TensorView input, Rows rows, TensorView output) override {
    for (int64_t e = 0; e < experts_.count; ++e) {
      const TensorView before = rows_of(before_, e, rows), after = rows_of(after_, e, rows);
      gemm(matrix(rows_of(input, e, rows)), matrix(expert_of(w1_, e)), matrix(before));
      gelu(before, after);
      gemm(matrix(after), matrix(expert_of(w2_, e)), matrix(expert_of(output, e)));
    }
  }

  void backward(TensorView input, Rows rows, TensorView d_output, TensorView d_input, bool first_chunk) override {
    const Into into = first_chunk ? Into::overwrite : Into::add;
    const TensorView d_hidden = d_hidden_.view().part(0, {rows.count(), hidden_.count});
    for (int64_t e = 0; e < experts_.count; ++e) {
      const Matrix dy = matrix(expert_of(d_output, e));
      gemm(dy, transpose(matrix(expert_of(w2_, e))), matrix(d_hidden));
      gemm(transpose(matrix(rows_of(after_, e, rows))), dy, matrix(expert_of(d_w2_, e)), into);
      gelu_backward(rows_of(before_, e, rows), d_hidden, d_hidden);
      gemm(transpose(matrix(rows_of(input, e, rows))), matrix(d_hidden), matrix(expert_of(d_w1_, e)), into);
      gemm(matrix(d_hidden), transpose(matrix(expert_of(w1_, e))), matrix(expert_of(d_input, e)));
    }
  }

  std::vector<Parameter> parameters() override {
    const Share width{0, model_dim_, model_dim_};
    return {{std::string(kW1), {experts_, width, hidden_}, w1_, d_w1_, SummedOver::edp},
            {std::string(kW2), {experts_, hidden_, width}, w2_, d_w2_, SummedOver::edp}};
  }

 private:
  static TensorView expert_of(TensorView t, int64_t e) {
    return t.part(e * t.size(1) * t.size(2), {t.size(1), t.size(2)});
  }
  static TensorView rows_of(TensorView t, int64_t e, Rows rows) {
    return t.part((e * t.size(1) + rows.begin) * t.size(2), {rows.count(), t.size(2)});
  }

  Share experts_, hidden_;
  int64_t model_dim_;
  Tensor w1_, d_w1_;       // (El, M, H / N_ESP)
  Tensor w2_, d_w2_;       // (El, H / N_ESP, M)
  Tensor before_, after_;  // (El, R, H / N_ESP): stored around gelu
  Tensor d_hidden_;        // (rows of a chunk, H / N_ESP)
};

}  // namespace

std::unique_ptr<Expert> make_gpt_expert(const ExpertSetup& setup) { return std::make_unique<GptExpert>(setup); }

}  // namespace moe
