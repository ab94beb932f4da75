#include <algorithm>
#include <cmath>
#include <cuda_runtime.h>
#include <functional>
#include <numeric>

#include "microbench/cuda/thrust_gather.h"
#include "microbench/kernel_figure.h"
#include "moe/base/random.h"
#include "moe/device/cuda/check.h"
#include "moe/layer/cuda/gemm.h"
#include "moe/layer/cuda/kernels.h"
#include "moe/layer/experts/expert.h"
#include "moe/layer/layer_device.h"
#include "moe/layer/on_host.h"

namespace moe {
namespace {

constexpr int64_t kTokens = 16384, kExperts = 8, kTopK = 2;
constexpr int64_t kModelDim = 2048, kHidden = 8192, kExpertRows = 2048, kLocalExperts = 4;
constexpr int kRuns = 20;  // of a turn

// A stream and two events on it.
class Stopwatch {
 public:
  Stopwatch() {
    MOE_CHECK_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    for (cudaEvent_t* event : {&begin_, &end_}) MOE_CHECK_CUDA(cudaEventCreate(event));
  }
  ~Stopwatch() {
    cudaEventDestroy(begin_), cudaEventDestroy(end_);
    cudaStreamDestroy(stream_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  cudaStream_t stream() const { return stream_; }
  /// Of one run, in the fastest turn; the first is not counted.
  double seconds(int turns, const std::function<void()>& run) const {
    float least = 0;
    for (int turn = 0; turn <= turns; ++turn) {
      MOE_CHECK_CUDA(cudaEventRecord(begin_, stream_));
      for (int i = 0; i < kRuns; ++i) run();
      MOE_CHECK_CUDA(cudaEventRecord(end_, stream_));
      MOE_CHECK_CUDA(cudaEventSynchronize(end_));
      float milliseconds = 0;
      MOE_CHECK_CUDA(cudaEventElapsedTime(&milliseconds, begin_, end_));
      least = turn <= 1 ? milliseconds : std::min(least, milliseconds);
    }
    return least * 1e-3 / kRuns;
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

Tensor random_rows(std::initializer_list<int64_t> shape, MemorySpace& memory) {
  Tensor t(shape, DType::float32, memory);
  const OnHost host(t, memory);
  for (int64_t i = 0; i < t.view().elements(); ++i)
    host.view().as<float>()[i] = static_cast<float>(random_uniform(1, 2, static_cast<uint64_t>(i)) - 0.5);
  host.send();
  return t;
}

RankShape routed_shape(int64_t width) {
  LayerShape layer{.batch = 1, .seq = kTokens, .model_dim = width, .hidden = kHidden, .heads = 1};
  layer.experts = kExperts;
  layer.top_k = kTopK;
  return rank_shape(complete(layer, {}, Rounding::ragged), 0);
}

// A routing that a gate made, and rows of 4 or 2 bytes an element, whose values no kernel's time depends on.
class Orders {
 public:
  Orders(LayerDevice& device, const Stopwatch& watch, int64_t width)
      : memory_(device.math().memory()),
        watch_(watch),
        rank_(routed_shape(width)),
        routing_(make_routing(rank_, memory_)),
        hidden_(random_rows({kTokens, width}, memory_)) {
    device.math().use(watch.stream());
    device.make_gate({rank_, {}, device.math()})->forward(hidden_, routing_);
    routing_.fetch();
    RowLayout::Shape shape{rank_.rows, width, 1, kExperts, 1, false, {}};
    for (int e = 0; e < kExperts; ++e) shape.cells.push_back({0, e, e});
    layout_ = RowLayout(std::move(shape));
    layout_.put_on(memory_);
    rows_ = Tensor({layout_.elements()}, DType::float32, memory_);
    other_ = Tensor({layout_.elements()}, DType::float32, memory_);
    output_ = Tensor({kTokens, width}, DType::float32, memory_);
    d_weight_ = Tensor({kTokens, kTopK}, DType::float32, memory_);
    token_of_ = Array<int32_t>(memory_, routing_.device.pair_of.size());
    std::vector<int32_t> tokens(static_cast<size_t>(token_of_.size()));
    routing_.device.pair_of.to_host(tokens.data());
    for (int32_t& token : tokens) token = std::max(token, 0) / static_cast<int32_t>(kTopK);  // an empty row: any
    token_of_.from_host(tokens.data());
    verify(device);
  }

  void measure(DType dtype, int turns, std::vector<KernelFigure>& figures) const {
    const double row = static_cast<double>(rank_.model_dim() * bytes_of(dtype));
    const double all = static_cast<double>(layout_.elements() * bytes_of(dtype)), own = kTokens * row;
    const double kept = row * static_cast<double>(std::accumulate(routing_.filled.begin(), routing_.filled.end(), 0L));
    const cuda::Work work{watch_.stream(), dtype};
    const cuda::RoutingArrays r{kTokens, kTopK, routing_.device.pair_of.size(), routing_.device.slot_of.data(),
                                routing_.device.pair_of.data()};
    const cuda::PlacedRows rows{data(rows_), layout_.places()}, d_rows{data(other_), layout_.places()};
    const int64_t width = rank_.model_dim();
    double copied = 0;
    const auto add = [&](std::string_view name, double bytes, const std::function<void()>& run) {
      const double seconds = watch_.seconds(turns, run), rate = bytes / seconds;
      if (copied == 0) copied = rate;
      figures.push_back(
          {fmt::format("GPU {} {}", name_of(dtype), name), "GPU copy", width, seconds, rate * 1e-9, rate / copied});
    };
    add("copy", 2 * all, [&] { memory_.copy(data(rows_), data(other_), static_cast<int64_t>(all), watch_.stream()); });
    add("gather by Thrust", own + all, [&] {
      thrust_gather(data(hidden_), token_of_.data(), token_of_.size(), static_cast<int64_t>(row) / 16, data(other_),
                    watch_.stream());
    });
    add("order", own + all, [&] { cuda::order_rows(work, r, data(hidden_), rows, width); });
    add("i-order", own + kept, [&] {
      cuda::combine_rows(work, r, {data(routing_.weight), rows, data(output_)}, width);
    });
    add("i-order backward", own + kept + all, [&] {
      cuda::combine_rows_backward(work, r, {data(routing_.weight), data(hidden_), rows, d_rows, data(d_weight_)},
                                  width);
    });
    add("order backward", own + kept, [&] { cuda::combine_rows(work, r, {nullptr, d_rows, data(output_)}, width); });
  }

 private:
  static void* data(const Tensor& t) { return t.view().data(); }

  // Rows and tokens as the CPU makes them.
  void verify(LayerDevice& device) {
    const auto order = device.make_order(rank_), expected = make_order("tutel", DType::float32);
    const Tensor rows({layout_.elements()}, DType::float32), output({kTokens, rank_.model_dim()}, DType::float32);
    Routing routing = make_routing(rank_);
    routing.expert = routing_.expert, routing.row = routing_.row, routing.filled = routing_.filled;
    memory_.to_host(data(routing_.weight), data(routing.weight), routing.weight.view().bytes());
    order->order(routing_, hidden_, {rows_, layout_});
    expected->order(routing, OnHost(hidden_, memory_).view(), {rows, layout_});
    order->i_order(routing_, {rows_, layout_}, output_);
    expected->i_order(routing, {rows, layout_}, output);
    compare(rows_, rows, 0, "rows that the GPU ordered");
    compare(output_, output, 1e-6, "tokens that the GPU brought back");
  }

  void compare(TensorView there, TensorView expected, double tolerance, std::string_view what) const {
    const OnHost found(there, memory_);
    for (int64_t i = 0; i < expected.elements(); ++i) {
      const double a = found.view().as<float>()[i], b = expected.as<float>()[i];
      require<WrongResult>(std::abs(a - b) <= tolerance, "{}: element {}: found {}, expected {}", what, i, a, b);
    }
  }

  MemorySpace& memory_;
  const Stopwatch& watch_;
  RankShape rank_;
  Routing routing_;
  RowLayout layout_;
  Tensor hidden_, rows_, other_, output_, d_weight_;
  Array<int32_t> token_of_;
};

// Forward and backward of all experts, beside as many GEMMs of the same shapes and nothing between them.
void bench_experts(Ffn ffn, LayerDevice& device, const Stopwatch& watch, int turns,
                   std::vector<KernelFigure>& figures) {
  Math& math = device.math();
  math.use(watch.stream());
  LayerShape layer{.batch = 1, .seq = kExpertRows, .model_dim = kModelDim, .hidden = kHidden, .heads = 1};
  layer.experts = kLocalExperts;
  layer.top_k = 1;
  layer.ffn = ffn;
  const RankShape rank = rank_shape(complete(layer, {}, Rounding::ragged), 0);
  const auto expert = make_expert(name_of(ffn), {rank, {}, math});
  expert->reserve(kLocalExperts * kExpertRows);
  std::vector<Rows> rows;
  for (int64_t e = 0; e < kLocalExperts; ++e) rows.push_back({e * kExpertRows, (e + 1) * kExpertRows});
  const auto make = [&](int64_t height, int64_t width) {
    return random_rows({kLocalExperts * height, width}, math.memory());
  };
  const Tensor x = make(kExpertRows, kModelDim), y = make(kExpertRows, kModelDim), d_x = make(kExpertRows, kModelDim);
  const Tensor hidden = make(kExpertRows, kHidden), w1 = make(kModelDim, kHidden), d_w1 = make(kModelDim, kHidden);
  const auto gemm = cuda::make_cublas_gemm(cuda::Selection::timed);
  const auto one = [](const Tensor& t) {
    return matrix(t.view().part(0, {t.view().size(0) / kLocalExperts, t.view().size(1)}));
  };
  const auto multiply = [&](const Matrix& a, const Matrix& b, const Matrix& out) {
    gemm->run(a, b, out, Into::overwrite, {kLocalExperts, a.rows * a.cols, b.rows * b.cols, out.rows * out.cols},
              watch.stream());
  };
  const int inputs = gemms_of(ffn) - 1;
  const auto row = [&](std::string_view phase, const std::function<void()>& run, const std::function<void()>& gemms) {
    const double seconds = watch.seconds(turns, run);
    figures.push_back({fmt::format("GPU float32 experts {} {}", name_of(ffn), phase), "its GEMMs by cuBLASLt, timed",
                       kModelDim, seconds, 0, watch.seconds(turns, gemms) / seconds});
  };
  const Matrix w2 = transpose(one(w1));  // (H, M)
  row(
      "forward", [&] { expert->forward(x, rows, y); },
      [&] {
        for (int i = 0; i < inputs; ++i) multiply(one(x), one(w1), one(hidden));
        multiply(one(hidden), w2, one(y));
      });
  row(
      "backward", [&] { expert->backward(x, rows, y, d_x, true); },
      [&] {
        multiply(one(y), one(w1), one(hidden));
        multiply(transpose(one(x)), one(hidden), one(d_w1));
        for (int i = 0; i < inputs; ++i) {
          multiply(transpose(one(x)), one(hidden), one(d_w1));
          multiply(one(hidden), w2, one(d_x));
        }
      });
}

}  // namespace

std::vector<KernelFigure> measure_gpu_kernels(int turns) {
  std::vector<KernelFigure> figures;
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) return figures;
  const Stopwatch watch;
  const auto device = make_cuda_layer_device();
  for (const int64_t width : {1024, 2048, 4096}) {
    const Orders orders(*device, watch, width);
    for (const DType dtype : {DType::float32, DType::bfloat16}) orders.measure(dtype, turns, figures);
  }
  for (const Ffn ffn : {Ffn::gpt, Ffn::mixtral}) bench_experts(ffn, *device, watch, turns, figures);
  return figures;
}

}  // namespace moe
