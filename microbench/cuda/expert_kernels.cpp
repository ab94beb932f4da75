#include "microbench/cuda/gpu_kernels.h"
#include "microbench/plain_expert.h"
#include "moe/layer/experts/expert.h"
#include "moe/tensor/cuda/gemm.h"
#include "moe/tensor/host_copy.h"

namespace moe::microbench {
namespace {

constexpr int64_t kLocalExperts = 4;
constexpr int64_t kMaxCopied = 3;  // largest copy, in tensors of size (rows, H)

// Times all experts of a rank, and as many GEMMs of the same shapes without other kernels between them.
class Experts {
 public:
  Experts(const KernelSizes& sizes, Ffn ffn, LayerDevice& device, const Stopwatch& watch)
      : sizes_(sizes),
        ffn_(ffn),
        math_(device.math()),
        watch_(watch),
        rank_(shape_of(sizes, ffn)),
        expert_(make_expert(name_of(ffn), {rank_, {}, math_})),
        x_(make(sizes.expert_rows, sizes.model_dim)),
        y_(make(sizes.expert_rows, sizes.model_dim)),
        d_y_(make(sizes.expert_rows, sizes.model_dim)),
        d_x_(make(sizes.expert_rows, sizes.model_dim)),
        hidden_(make(sizes.expert_rows, sizes.hidden)),
        w1_(make(sizes.model_dim, sizes.hidden)),
        d_w1_(make(sizes.model_dim, sizes.hidden)),
        gradients_({gemms_of(ffn) * d_w1_.view().elements()}, sizes.dtype, math_.memory()),
        copied_({kMaxCopied, hidden_.view().elements()}, sizes.dtype, math_.memory()),
        copy_({kMaxCopied, hidden_.view().elements()}, sizes.dtype, math_.memory()) {
    expert_->reserve(kLocalExperts * sizes.expert_rows);
    for (int64_t e = 0; e < kLocalExperts; ++e) rows_.push_back({e * sizes.expert_rows, (e + 1) * sizes.expert_rows});
    expert_->forward(x_, rows_, y_);  // a backward needs a forward before it
  }

  std::vector<measure::Kernel> kernels() {
    const double inputs = inputs_;
    return {kernel(
                "forward", [this] { expert_->forward(x_, rows_, y_); }, [this] { return wrong_expert(true); }),
            single_kernel(
                "forward GEMMs", [this] { forward(); }, [this] { return wrong_forward(); }),
            copies("forward activation", inputs + 1),
            kernel(
                "backward",
                [this] {
                  expert_->backward({x_, rows_, d_y_, d_x_}, gradients_, Into::overwrite);
                },
                [this] { return wrong_expert(false); }),
            single_kernel(
                "backward GEMMs", [this] { backward(); }, [this] { return wrong_backward(); }),
            copies("backward activation", 2 * inputs + 1)};
  }

 private:
  static RankShape shape_of(const KernelSizes& sizes, Ffn ffn) {
    LayerShape layer{.batch = 1, .seq = sizes.expert_rows, .model_dim = sizes.model_dim, .hidden = sizes.hidden};
    layer.heads = layer.top_k = 1;
    layer.experts = kLocalExperts;
    layer.ffn = ffn;
    layer.dtype = sizes.dtype;
    return rank_shape(complete(layer, {}, Rounding::ragged), 0);
  }
  Tensor make(int64_t height, int64_t width) const {
    return random_rows({kLocalExperts * height, width}, sizes_.dtype, math_.memory());
  }

  measure::Kernel single_kernel(std::string_view what, std::function<void()> run,
                                std::function<measure::WrongElements()> check) const {
    const std::string_view dtype = name_of(sizes_.dtype);
    measure::Kernel k{.name = fmt::format("GPU {} experts {} {}", dtype, name_of(ffn_), what),
                      .width = sizes_.model_dim};
    k.shape = {{"device", "cuda"},
               {"dtype", std::string(dtype)},
               {"hidden", sizes_.hidden},
               {"rows", sizes_.expert_rows},
               {"experts", kLocalExperts}};
    k.run = std::move(run);
    k.check = std::move(check);
    watch_.time(k);
    return k;
  }
  measure::Kernel kernel(std::string_view what, std::function<void()> run,
                         std::function<measure::WrongElements()> check) const {
    measure::Kernel k = single_kernel(what, std::move(run), std::move(check));
    k.bound = {"GEMMs by cuBLASLt, timed, and copies",
               {named(what, "GEMMs").key(), named(what, "activation").key()},
               [](double seconds, double of) { return of / seconds; }};
    return k;
  }
  // Returns a kernel that copies as many bytes as an activation reads and writes: `tensors` tensors of size (rows, H).
  measure::Kernel copies(std::string_view what, double tensors) const {
    const auto bytes = static_cast<int64_t>(tensors / 2 * static_cast<double>(hidden_.view().bytes()));
    measure::Kernel k = single_kernel(
        what,
        [this, bytes] { math_.memory().copy(copied_.view().data(), copy_.view().data(), bytes, watch_.stream()); },
        [] { return measure::WrongElements(); });
    k.bytes = 2.0 * static_cast<double>(bytes);
    return k;
  }
  measure::Kernel named(std::string_view what, std::string_view part) const {
    return single_kernel(fmt::format("{} {}", what, part), {}, {});
  }

  static Matrix expert_matrix(TensorView t) { return matrix(t.part(0, {t.size(0) / kLocalExperts, t.size(1)})); }
  void multiply(const Matrix& a, const Matrix& b, const Matrix& out) const {
    gemm_->run(a, b, out, {.batch = {kLocalExperts, a.rows * a.cols, b.rows * b.cols, out.rows * out.cols}},
               watch_.stream());
  }
  void forward() const {
    for (int i = 0; i < inputs_; ++i) multiply(expert_matrix(x_), expert_matrix(w1_), expert_matrix(hidden_));
    multiply(expert_matrix(hidden_), w2_, expert_matrix(y_));
  }
  void backward() const {
    multiply(expert_matrix(d_y_), expert_matrix(w1_), expert_matrix(hidden_));
    for (int i = 0; i <= inputs_; ++i)
      multiply(transpose(expert_matrix(x_)), expert_matrix(hidden_), expert_matrix(d_w1_));
    for (int i = 0; i < inputs_; ++i) multiply(expert_matrix(hidden_), w2_, expert_matrix(d_x_));
  }

  // A copy of the last expert's rows of a tensor.
  struct LastHostCopy : HostCopy {
    LastHostCopy(TensorView t, MemorySpace& memory)
        : HostCopy(t.part(t.elements() / kLocalExperts * (kLocalExperts - 1), {t.size(0) / kLocalExperts, t.size(1)}),
                   memory) {}
    operator Matrix() const { return matrix(view()); }
  };
  LastHostCopy last(TensorView t) const { return {t, math_.memory()}; }

  measure::WrongElements wrong_forward() const {
    const LastHostCopy x = last(x_), w1 = last(w1_), hidden = last(hidden_), y = last(y_);
    const measure::WrongElements wrong = measure::wrong_products(x, w1, hidden, sizes_.dtype);
    return wrong.count > 0 ? wrong : measure::wrong_products(hidden, transpose(w1), y, sizes_.dtype);
  }
  measure::WrongElements wrong_backward() const {
    const LastHostCopy x = last(x_), w1 = last(w1_), hidden = last(hidden_), d_y = last(d_y_), d_x = last(d_x_),
                       d_w1 = last(d_w1_);
    measure::WrongElements wrong = measure::wrong_products(d_y, w1, hidden, sizes_.dtype);
    if (wrong.count == 0) wrong = measure::wrong_products(transpose(x), hidden, d_w1, sizes_.dtype);
    return wrong.count > 0 ? wrong : measure::wrong_products(hidden, transpose(w1), d_x, sizes_.dtype);
  }
  measure::WrongElements wrong_expert(bool is_forward) const {
    std::vector<LastHostCopy> copies;
    copies.reserve(2 * 3);
    std::map<std::string, PlainExpert::Weight> weights;
    for (const Parameter& p : expert_->parameters(gradients_)) {
      const int64_t height = p.axes[1].count, width = p.axes[2].count;
      const auto copy = [&](TensorView t) -> Matrix {
        return copies.emplace_back(last(t.part(0, {kLocalExperts * height, width})));
      };
      weights[p.name] = {copy(p.value), copy(p.gradient)};
    }
    const LastHostCopy x = last(x_), d_y = last(d_y_), found = last(is_forward ? y_ : d_x_);
    const PlainExpert plain(std::move(weights), x, d_y, sizes_.dtype);
    return is_forward ? plain.wrong_output(found) : plain.wrong_gradients(found);
  }

  const KernelSizes& sizes_;
  Ffn ffn_;
  Math& math_;
  const Stopwatch& watch_;
  RankShape rank_;
  std::unique_ptr<Expert> expert_;
  std::vector<Rows> rows_;
  Tensor x_, y_, d_y_, d_x_, hidden_, w1_, d_w1_, gradients_, copied_, copy_;
  std::unique_ptr<cuda::Gemm> gemm_ = cuda::make_cublas_gemm(cuda::AlgorithmChoice::timed);
  int inputs_ = gemms_of(ffn_) - 1;
  Matrix w2_ = transpose(expert_matrix(w1_));  // (H, M)
};

}  // namespace

void gpu_expert_kernels(const KernelSizes& sizes, Ffn ffn, LayerDevice& device, const Stopwatch& watch,
                        const KernelGroup& group) {
  Experts experts(sizes, ffn, device, watch);
  group(experts.kernels());
}

}  // namespace moe::microbench
