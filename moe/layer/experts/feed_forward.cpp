#include "moe/layer/experts/feed_forward.h"

#include "moe/layer/cpu/math.h"
#include "moe/layer/tensor.h"

namespace moe {
namespace {

TensorView rows_of(TensorView t, Rows rows) { return t.part(rows.begin * t.size(1), {rows.count(), t.size(1)}); }

std::vector<TensorView> rows_of(std::span<const Tensor> tensors, Rows rows) {
  std::vector<TensorView> parts;
  for (const Tensor& t : tensors) parts.push_back(rows_of(t.view(), rows));
  return parts;
}

class FeedForward final : public Expert {
 public:
  FeedForward(const ExpertSetup& setup, const Activation& activation)
      : act_(activation),
        inputs_(activation.inputs.size()),
        experts_(setup.rank.experts),
        hidden_(setup.rank.hidden),
        model_dim_(setup.rank.model_dim()),
        before_(inputs_),
        d_before_(inputs_) {
    const int64_t all = static_cast<int64_t>(inputs_ + 1) * experts_.count * size();
    for (Tensor* t : {&weights_, &d_weights_}) *t = Tensor({all}, setup.rank.dtype());
    for (const Parameter& p : parameters()) fill_weight(p, p.axes[1].total, setup.seed);
  }

  void reserve(int64_t rows) override {
    if (after_.view().rank() > 0 && after_.view().size(0) >= rows) return;
    const auto make = [&](Tensor& t) { t = Tensor({rows, hidden_.count}, weights_.view().dtype()); };
    make(after_);
    for (size_t i = 0; i < inputs_; ++i) make(before_[i]), make(d_before_[i]);
  }

  void forward(TensorView input, std::span<const Rows> rows, TensorView output) override {
    Rows out;
    for (int64_t e = 0; e < experts_.count; ++e) {
      const Rows in = rows[static_cast<size_t>(e)];
      out = {out.end, out.end + in.count()};
      const auto before = rows_of(before_, in);
      const TensorView after = rows_of(after_, in);
      for (size_t i = 0; i < inputs_; ++i)
        gemm(matrix(rows_of(input, in)), matrix(weight(weights_, i, e)), matrix(before[i]));
      act_.forward(before, after);
      gemm(matrix(after), matrix(weight(weights_, inputs_, e)), matrix(rows_of(output, out)));
    }
  }

  void backward(TensorView input, std::span<const Rows> rows, TensorView d_output, TensorView d_input,
                bool first_chunk) override {
    const Into into = first_chunk ? Into::overwrite : Into::add;
    Rows out;
    for (int64_t e = 0; e < experts_.count; ++e) {
      const Rows in = rows[static_cast<size_t>(e)];
      out = {out.end, out.end + in.count()};
      const Matrix x = matrix(rows_of(input, in)), dy = matrix(rows_of(d_output, out));
      const auto d_before = rows_of(d_before_, {0, in.count()});
      gemm(dy, transpose(matrix(weight(weights_, inputs_, e))), matrix(d_before[0]));
      gemm(transpose(matrix(rows_of(after_, in))), dy, matrix(weight(d_weights_, inputs_, e)), into);
      act_.backward(rows_of(before_, in), d_before);
      for (size_t i = 0; i < inputs_; ++i) {
        const Matrix d = matrix(d_before[i]);
        gemm(transpose(x), d, matrix(weight(d_weights_, i, e)), into);
        gemm(d, transpose(matrix(weight(weights_, i, e))), matrix(rows_of(d_input, out)),
             i == 0 ? Into::overwrite : Into::add);
      }
    }
  }

  std::vector<Parameter> parameters() override {
    const Share width{0, model_dim_, model_dim_};
    std::vector<Parameter> all;
    for (size_t i = 0; i <= inputs_; ++i) {
      const bool last = i == inputs_;
      const Share rows = last ? hidden_ : width, columns = last ? width : hidden_;
      const auto whole = [&](TensorView t) { return t.part(start(i, 0), {experts_.count, rows.count, columns.count}); };
      all.push_back({std::string(last ? kW2 : act_.inputs[i]),
                     {experts_, rows, columns},
                     whole(weights_),
                     whole(d_weights_),
                     SummedOver::edp});
    }
    return all;
  }

  TensorView gradients() override { return d_weights_; }

 private:
  int64_t size() const { return model_dim_ * hidden_.count; }
  int64_t start(size_t i, int64_t e) const { return (static_cast<int64_t>(i) * experts_.count + e) * size(); }
  // Weight i of expert e, the last one W2.
  TensorView weight(TensorView all, size_t i, int64_t e) const {
    if (i == inputs_) return all.part(start(i, e), {hidden_.count, model_dim_});
    return all.part(start(i, e), {model_dim_, hidden_.count});
  }

  Activation act_;
  size_t inputs_;
  Share experts_, hidden_;
  int64_t model_dim_;
  Tensor weights_, d_weights_;             // weight after weight, W2 last, each of all local experts
  std::vector<Tensor> before_, d_before_;  // (rows, H / N_ESP) an input: stored; of one expert's chunk
  Tensor after_;                           // (rows, H / N_ESP), stored
};

}  // namespace

std::unique_ptr<Expert> make_feed_forward(const ExpertSetup& setup, const Activation& activation) {
  return std::make_unique<FeedForward>(setup, activation);
}

}  // namespace moe
