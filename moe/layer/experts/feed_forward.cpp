#include "moe/layer/experts/feed_forward.h"

#include <array>
#include <optional>

#include "moe/layer/experts/fp8_products.h"
#include "moe/layer/norm.h"

namespace moe {
namespace {

TensorView rows_of(TensorView t, Rows rows) { return t.part(rows.begin * t.size(1), {rows.count(), t.size(1)}); }

std::vector<TensorView> rows_of(std::span<const TensorView> tensors, Rows rows) {
  std::vector<TensorView> parts;
  for (const TensorView& t : tensors) parts.push_back(rows_of(t, rows));
  return parts;
}

// Experts that one call of each GEMM serves: `count` from `first` on, each with `rows` rows. `at` and `packed` are the
// first row where the experts compute, and in a packed chunk; the next expert's are `step` and `rows` rows further on.
struct Run {
  int64_t first = 0, count = 1;
  int64_t rows = 0, at = 0, step = 0, packed = 0;
};

// The first row of a run's first expert, and the distance in rows to the next expert's.
struct Place {
  int64_t begin = 0, step = 0;
};
Place compute_place(const Run& run) { return {run.at, run.step}; }    // where the experts compute
Place chunk_place(const Run& run) { return {run.packed, run.rows}; }  // in a packed chunk
Place front_place(const Run& run) { return {0, run.rows}; }           // in memory that serves one run

class FeedForward final : public Expert {
 public:
  FeedForward(const PartSetup& setup, const Activation& activation)
      : math_(setup.math),
        memory_(setup.memory),
        act_(activation),
        inputs_(activation.inputs.size()),
        experts_(setup.rank.experts),
        hidden_(setup.rank.hidden),
        model_dim_(setup.rank.model_dim()),
        out_columns_(share_of(model_dim_, static_cast<int>(hidden_.total / hidden_.count),
                              static_cast<int>(hidden_.first / hidden_.count))),
        prefix_(setup.prefix),
        has_capacity_(setup.rank.shape.layer.capacity_factor.has_value()) {
    if (setup.rank.shape.layer.bias) biases_.emplace(math_, setup.rank.dtype());
    const int64_t all = biases_ ? bias_start(inputs_, experts_.count) : start(inputs_, experts_.count);
    weights_ = setup.weight(prefix_ + "experts", {all}, setup.rank.dtype());
    read_ = weights_;
    for (size_t i = 0; const Parameter& p : parameters(weights_))  // matrices, then biases
      fill_weight(p, i++ <= inputs_ ? p.axes[1].total : model_dim_, setup.seed, math_.memory());
    if (activation.fp8) fp8_.emplace(setup, index(inputs_ + 1, 0), model_dim_, hidden_.count);
  }

  void reserve(int64_t rows) override {
    reserved_.clear();
    if (fp8_) fp8_->reserve(rows);
    activated_ = make(Lifetime::kept, "after", 1, rows).at.front();
    pre_activation_ = make(Lifetime::kept, "before", inputs_, rows);
    d_pre_activation_ = make(Lifetime::moe_backward, "gradient before", inputs_, rows);
    passed_ = 0;
  }

  void forward(TensorView input, std::span<const Rows> rows, TensorView output) override {
    begin_rows(rows);
    for_each_run(rows, [&](const Run& run) {
      const int64_t h = hidden_.count, m = model_dim_;
      const Factor x = factor(rows_at(input, run, compute_place(run)), run.step * m, Lifetime::moe_forward);
      for_inputs(run, [&](size_t i, bool all) {
        multiply_by_weight(x, run, i, rows_at(pre_activation_.at[i], run, compute_place(run)), Into::overwrite,
                           run.step * h, all);
      });
      for (size_t i = 0; biases_ && i < inputs_; ++i)
        biases_->add(bias(read_, i, run.first), rows_at(pre_activation_.at[i], run, compute_place(run)),
                     {run.count, 0, h, run.step * h});
      for_each_block(run, compute_place(run), [&](Rows in, Rows) {
        act_.forward(math_, rows_of(pre_activation_.at, in), rows_of(activated_, in));
      });
      multiply_by_weight(factor(rows_at(activated_, run, compute_place(run)), run.step * h, Lifetime::moe_forward), run,
                         inputs_, rows_at(output, run, chunk_place(run)), Into::overwrite, run.rows * m);
      if (biases_)
        biases_->add(bias(read_, inputs_, run.first), shard_columns(output, run, chunk_place(run)),
                     {run.count, 0, out_columns_.count, run.rows * m});
    });
  }

  // The tensors between both halves of a run stay in cache.
  void backward(const ExpertPass& pass, TensorView gradients, Into into) override {
    for_each_run(pass.rows, [&](const Run& run) {
      input_gradients(run, pass, chunk_place(run), front_place(run));
      weight_gradients(run, pass, chunk_place(run), front_place(run), gradients, into);
    });
  }

  void backward_inputs(const ExpertPass& pass) override {
    for_each_run(pass.rows,
                 [&](const Run& run) { input_gradients(run, pass, compute_place(run), compute_place(run)); });
  }

  void backward_weights(const ExpertPass& pass, TensorView gradients, Into into) override {
    for_each_run(pass.rows, [&](const Run& run) {
      weight_gradients(run, pass, compute_place(run), compute_place(run), gradients, into);
    });
  }

  std::vector<Parameter> parameters(TensorView gradients) override {
    const ShardRange width{0, model_dim_, model_dim_};
    std::vector<Parameter> all;
    for (size_t i = 0; i <= inputs_; ++i) {
      const bool last = i == inputs_;
      const ShardRange rows = last ? hidden_ : width, columns = last ? width : hidden_;
      const auto whole = [&](TensorView t) { return t.part(start(i, 0), {experts_.count, rows.count, columns.count}); };
      all.push_back({prefix_ + std::string(last ? kW2 : act_.inputs[i]),
                     {experts_, rows, columns},
                     whole(weights_),
                     whole(gradients),
                     SummedOver::edp,
                     1,
                     prefix_.empty() ? 3 : 2});
    }
    for (size_t i = 0; biases_ && i <= inputs_; ++i) {
      const ShardRange& columns = i == inputs_ ? out_columns_ : hidden_;
      const auto whole = [&](TensorView t) { return t.part(bias_start(i, 0), {experts_.count, 1, columns.count}); };
      std::string name(i == inputs_ ? kW2 : act_.inputs[i]);
      name.front() = 'b';
      all.push_back({prefix_ + name,
                     {experts_, {0, 1, 1}, columns},
                     whole(weights_),
                     whole(gradients),
                     SummedOver::edp,
                     1,
                     prefix_.empty() ? 3 : 1});
    }
    return all;
  }

  TensorView weights() const override { return weights_; }
  void read_weights_from(TensorView copy) override { read_ = copy; }

 private:
  // Computes d_input and, at `d`, the gradients before the activation, from d_output's rows at `dy`.
  void input_gradients(const Run& run, const ExpertPass& pass, Place dy, Place d) {
    const int64_t h = hidden_.count, m = model_dim_;
    multiply_by_transpose(factor(rows_at(pass.d_output, run, dy), dy.step * m, Lifetime::moe_backward), run, inputs_,
                          rows_at(d_pre_activation_.at[0], run, d), Into::overwrite, d.step * h);
    for_each_block(run, d, [&](Rows in, Rows at) {
      act_.backward(math_, rows_of(pre_activation_.at, in), rows_of(d_pre_activation_.at, at));
    });
    for (size_t i = 0; i < inputs_; ++i)
      multiply_by_transpose(factor(rows_at(d_pre_activation_.at[i], run, d), d.step * h, Lifetime::moe_backward), run,
                            i, rows_at(pass.d_input, run, chunk_place(run)), i == 0 ? Into::overwrite : Into::add,
                            run.rows * m);
  }

  // Computes the parameters' gradients from the gradients that input_gradients left at `d`.
  void weight_gradients(const Run& run, const ExpertPass& pass, Place dy, Place d, TensorView gradients, Into into) {
    const int64_t h = hidden_.count, m = model_dim_;
    multiply(transpose(rows_at(activated_, run, compute_place(run))), rows_at(pass.d_output, run, dy),
             matrix(weight(gradients, inputs_, run.first)), into, {run.count, run.step * h, dy.step * m, size()});
    if (biases_)
      biases_->gradient(shard_columns(pass.d_output, run, dy), bias(gradients, inputs_, run.first), into,
                        {run.count, 0, dy.step * m, out_columns_.count});
    for_inputs(run, [&](size_t i, bool all) {
      Batch batch{run.count, run.step * m, d.step * h, size()};
      if (all) batch = {static_cast<int64_t>(inputs_), 0, d_pre_activation_.step, start(1, 0)};
      multiply(transpose(rows_at(pass.input, run, compute_place(run))), rows_at(d_pre_activation_.at[i], run, d),
               matrix(weight(gradients, i, run.first)), into, batch);
    });
    for (size_t i = 0; biases_ && i < inputs_; ++i)
      biases_->gradient(rows_at(d_pre_activation_.at[i], run, d), bias(gradients, i, run.first), into,
                        {run.count, 0, d.step * h, h});
  }

  // The inputs of an activation, or its output: (rows, H / N_ESP) each, `step` elements apart. The step depends on the
  // size of the memory, not on the rows: a product with another step counts as a new shape, whose algorithms are timed.
  struct HiddenTensors {
    std::vector<TensorView> at;
    int64_t step = 0;
  };
  HiddenTensors make(Lifetime lifetime, std::string_view name, size_t count, int64_t rows) {
    constexpr int64_t kAligned = 8;  // elements: 16 bytes of the shortest ones
    const int64_t parts = static_cast<int64_t>(count), least = (rows * hidden_.count + kAligned - 1) / kAligned;
    reserved_.push_back(memory_.store(lifetime).grow_to(fmt::format("{}{}", prefix_, name), parts * least * kAligned,
                                                        weights_.view().dtype(), math_.memory()));
    const TensorView all = reserved_.back()->view();
    HiddenTensors inside{{}, all.elements() / parts / kAligned * kAligned};
    for (int64_t i = 0; i < parts; ++i) inside.at.push_back(all.part(i * inside.step, {rows, hidden_.count}));
    return inside;
  }

  // Rows of a run that are multiplied by weights; the next expert's are `step` elements further on.
  struct Factor {
    Matrix rows;
    int64_t step;
  };
  Factor factor(const Matrix& rows, int64_t step, Lifetime phase) {
    if (fp8_) fp8_->round_rows(rows, phase);
    return {rows, step};
  }

  // Computes out = x W with weight i of a run's experts; the next expert's output is out_step elements further on.
  // `all_inputs`: with all weights of one expert before the activation.
  void multiply_by_weight(const Factor& x, const Run& run, size_t i, const Matrix& out, Into into, int64_t out_step,
                          bool all_inputs = false) {
    if (fp8_) return fp8_->multiply(index(i, run.first), false, out, into);
    Batch batch{run.count, x.step, size(), out_step};
    if (all_inputs) batch = {static_cast<int64_t>(inputs_), 0, start(1, 0), pre_activation_.step};
    multiply(x.rows, matrix(weight(read_, i, run.first)), out, into, batch);
  }
  // Computes out = x W^T, or adds it, in the same way.
  void multiply_by_transpose(const Factor& x, const Run& run, size_t i, const Matrix& out, Into into,
                             int64_t out_step) {
    if (fp8_) return fp8_->multiply(index(i, run.first), true, out, into);
    multiply(x.rows, transpose(matrix(weight(read_, i, run.first))), out, into, {run.count, x.step, size(), out_step});
  }

  // Rounds the weights at the beginning of a pass, which computes each row once.
  void begin_rows(std::span<const Rows> rows) {
    for (size_t i = 0; fp8_ && passed_ == 0 && i <= inputs_; ++i)
      for (int64_t e = 0; e < experts_.count; ++e) fp8_->round_weight(index(i, e), matrix(weight(read_, i, e)));
    for (const Rows& of : rows) passed_ += of.count();
    if (passed_ >= activated_.size(0)) passed_ = 0;
  }

  // Products of a layer with a capacity have the same few shapes in every pass.
  void multiply(const Matrix& a, const Matrix& b, const Matrix& out, Into into, Batch batch) {
    batch.fastest = has_capacity_;
    math_.gemm(a, b, out, into, batch);
  }

  int64_t size() const { return model_dim_ * hidden_.count; }
  int64_t index(size_t i, int64_t e) const { return static_cast<int64_t>(i) * experts_.count + e; }
  int64_t start(size_t i, int64_t e) const { return index(i, e) * size(); }
  // Returns weight i of expert e; the last weight is W2.
  TensorView weight(TensorView all, size_t i, int64_t e) const {
    if (i == inputs_) return all.part(start(i, e), {hidden_.count, model_dim_});
    return all.part(start(i, e), {model_dim_, hidden_.count});
  }

  // Returns the place at which a bias begins: biases lie after all weights.
  int64_t bias_start(size_t i, int64_t e) const {
    const int64_t before = start(inputs_ + 1, 0) + static_cast<int64_t>(i) * experts_.count * hidden_.count;
    return before + e * (i == inputs_ ? out_columns_ : hidden_).count;
  }
  TensorView bias(TensorView all, size_t i, int64_t e) const {
    return all.part(bias_start(i, e), {(i == inputs_ ? out_columns_ : hidden_).count});
  }
  static Matrix rows_at(TensorView t, const Run& run, Place place) {
    return matrix(rows_of(t, {place.begin, place.begin + run.rows}));
  }
  // Returns this shard's share of W2's columns.
  Matrix shard_columns(TensorView t, const Run& run, Place place) const {
    return columns(rows_of(t, {place.begin, place.begin + run.rows}), out_columns_.first, out_columns_.count);
  }

  // Calls body(rows where the experts compute, rows at `place`) for as many consecutive experts at once as possible.
  template <class Body>
  static void for_each_block(const Run& run, Place place, Body body) {
    const int64_t together = run.step == run.rows ? run.count : 1, rows = together * run.rows;
    for (int64_t e = 0; e < run.count; e += together) {
      const int64_t in = run.at + e * run.step, at = place.begin + e * place.step;
      body({in, in + rows}, {at, at + rows});
    }
  }

  // Calls body(i, false) for each weight before the activation, or only body(0, true) if one call for all is faster.
  template <class Body>
  void for_inputs(const Run& run, Body body) const {
    if (math_.batches() && run.count == 1 && inputs_ > 1 && !fp8_) return body(size_t{0}, true);
    for (size_t i = 0; i < inputs_; ++i) body(i, false);
  }

  // Calls body for all experts at once if that is faster and their rows are alike, else for one expert after the other,
  // so that a run's rows stay in cache.
  template <class Body>
  void for_each_run(std::span<const Rows> rows, Body body) const {
    const int64_t step = rows.size() > 1 ? rows[1].begin - rows[0].begin : 0;
    bool alike = math_.batches() && rows.size() > 1 && !fp8_;
    for (size_t e = 1; e < rows.size(); ++e)
      alike &= rows[e].count() == rows[0].count() && rows[e].begin - rows[e - 1].begin == step;
    if (alike) return body(Run{0, experts_.count, rows[0].count(), rows[0].begin, step, 0});
    Run run;
    for (; run.first < experts_.count; run.packed += run.rows, ++run.first) {
      const Rows& in = rows[run.first];
      run.rows = in.count();
      run.at = in.begin;
      body(run);
    }
  }

  Math& math_;
  LayerMemory memory_;
  Activation act_;
  size_t inputs_;
  ShardRange experts_, hidden_;
  int64_t model_dim_;
  ShardRange out_columns_;  // columns of M whose bias this shard adds
  std::string prefix_;
  bool has_capacity_;
  Weight weights_;   // weight after weight, W2 last, each for all local experts; biases likewise
  TensorView read_;  // the weights that tasks read: weights_, or a copy
  std::vector<std::shared_ptr<const Tensor>> reserved_;  // the memory of the following three:
  HiddenTensors pre_activation_, d_pre_activation_;      // stored; of one run's chunk, or stored if halved
  TensorView activated_;                                 // (rows, H / N_ESP), stored
  std::optional<RowBias> biases_;                        // none if there are no biases
  std::optional<Fp8Products> fp8_;                       // none: products use the weights as they are
  int64_t passed_ = 0;                                   // rows computed so far in this pass
};

}  // namespace

std::unique_ptr<Expert> make_feed_forward(const PartSetup& setup, const Activation& activation) {
  return std::make_unique<FeedForward>(setup, activation);
}

std::unique_ptr<Expert> make_gpt_expert(const PartSetup& setup) {
  static constexpr std::array kInputs{kW1};
  return make_feed_forward(setup,
                           {kInputs, [](Math& math, auto before, TensorView after) { math.gelu(before[0], after); },
                            [](Math& math, auto before, auto d) { math.gelu_backward(before[0], d[0], d[0]); }});
}

std::unique_ptr<Expert> make_gpt_tanh_expert(const PartSetup& setup) {
  static constexpr std::array kInputs{kW1};
  return make_feed_forward(
      setup, {kInputs, [](Math& math, auto before, TensorView after) { math.gelu_tanh(before[0], after); },
              [](Math& math, auto before, auto d) { math.gelu_tanh_backward(before[0], d[0], d[0]); }});
}

namespace {

constexpr std::array kInputs{kW1, kW3};

std::unique_ptr<Expert> make(const PartSetup& setup, bool fp8) {
  return make_feed_forward(
      setup,
      {kInputs, [](Math& math, auto before, TensorView after) { math.swiglu(before[0], before[1], after); },
       [](Math& math, auto before, auto d) { math.swiglu_backward(before[0], before[1], d[0], d[0], d[1]); }, fp8});
}

}  // namespace

std::unique_ptr<Expert> make_mixtral_expert(const PartSetup& setup) { return make(setup, false); }
std::unique_ptr<Expert> make_mixtral_fp8_expert(const PartSetup& setup) { return make(setup, true); }

}  // namespace moe
