#include <numeric>

#include "microbench/cuda/gpu_kernels.h"
#include "microbench/cuda/thrust_gather.h"
#include "moe/layer/cuda/kernels.h"
#include "moe/tensor/host_copy.h"

namespace moe::microbench {
namespace {

constexpr int64_t kOrderColumns = 64;

// A gate's routing, and the operands of an order's kernels.
class Orders {
 public:
  Orders(const KernelSizes& sizes, int64_t width, LayerDevice& device, const Stopwatch& watch)
      : memory_(device.math().memory()),
        watch_(watch),
        width_(width),
        dtype_(sizes.dtype),
        rank_(routed_shape(sizes, "gshard", sizes.tokens, width)),
        routing_(make_routing(rank_, memory_)),
        layout_(layout_of(rank_)),
        hidden_(random_rows({sizes.tokens, width}, dtype_, memory_)),
        rows_(random_rows({layout_.elements()}, dtype_, memory_)),
        other_({layout_.elements()}, dtype_, memory_),
        output_({sizes.tokens, width}, dtype_, memory_),
        d_weight_({sizes.tokens, sizes.top_k}, accumulation_type(dtype_), memory_) {
    device.make_gate({rank_, {}, device.math()})->forward(hidden_, routing_);
    routing_.fetch();
    layout_.place_tables_on(memory_, RowReader::order, routing_.slots());
    token_of_ = Array<int32_t>(memory_, routing_.device.pair_of.size());
    tokens_.resize(token_of_.size());
    routing_.device.pair_of.to_host(tokens_.data());
    for (int32_t& token : tokens_)
      token = std::max(token, 0) / static_cast<int32_t>(sizes.top_k);  // an empty row reads any token
    token_of_.from_host(tokens_.data());
  }

  std::vector<measure::Kernel> kernels() {
    const double row = static_cast<double>(width_ * bytes_of(dtype_)), all = static_cast<double>(rows_.view().bytes());
    const double own = static_cast<double>(routing_.tokens) * row;
    const double kept = row * static_cast<double>(std::accumulate(routing_.filled.begin(), routing_.filled.end(), 0L));
    const cuda::Work work{watch_.stream(), dtype_};
    const cuda::RoutingArrays r{routing_.tokens, routing_.choices, routing_.device.pair_of.size(),
                                routing_.device.slot_of.data(), routing_.device.pair_of.data()};
    const cuda::PlacedRows rows{data(rows_), layout_.places()}, others{data(other_), layout_.places()};
    return {
        kernel(
            "copy", 2 * all, [this] { memory_.copy(data(rows_), data(other_), rows_.view().bytes(), watch_.stream()); },
            [this] { return wrong_copies([](int64_t which) { return which; }, rows_); }),
        kernel(
            "gather by Thrust", own + all,
            [this, row] {
              thrust_gather(data(hidden_), {token_of_.data(), token_of_.size(), static_cast<int64_t>(row) / 16},
                            data(other_), watch_.stream());
            },
            [this] { return wrong_copies([&](int64_t which) { return tokens_[which]; }, hidden_); }),
        kernel(
            "order", own + all, [=, this] { cuda::order_rows(work, r, data(hidden_), rows, width_); },
            [this] { return wrong_ordered(rows_, nullptr); }),
        kernel(
            "i-order", own + kept,
            [=, this] {
              cuda::combine_rows(work, r, {data(routing_.weight), rows, data(output_)}, width_);
            },
            [this] { return wrong_combined(rows_, true); }),
        kernel(
            "i-order backward", own + kept + all,
            [=, this] {
              cuda::combine_rows_backward(
                  work, r, {data(routing_.weight), data(hidden_), rows, others, data(d_weight_)}, width_);
            },
            [this] { return wrong_back(); }),
        kernel(
            "order backward", own + kept,
            [=, this] {
              cuda::combine_rows(work, r, {nullptr, others, data(output_)}, width_);
            },
            [this] { return wrong_combined(other_, false); })};
  }

 private:
  static void* data(const Tensor& t) { return t.view().data(); }

  std::string named(std::string_view what) const { return fmt::format("GPU {} {}", name_of(dtype_), what); }

  measure::Kernel kernel(std::string_view what, double bytes, std::function<void()> run,
                         std::function<measure::WrongElements()> check) const {
    const double copied = 2.0 * static_cast<double>(rows_.view().bytes());
    measure::Kernel k{
        .name = named(what), .width = width_, .bytes = bytes, .run = std::move(run), .check = std::move(check)};
    k.shape = {{"device", "cuda"},
               {"dtype", std::string(name_of(dtype_))},
               {"tokens", routing_.tokens},
               {"experts", routing_.experts},
               {"rows", routing_.rows}};
    k.bound = {"GPU copy",
               {measure::Kernel{.name = named("copy"), .width = width_}.key()},
               [=](double seconds, double least) { return bytes / seconds * (least / copied); }};
    watch_.time(k);
    return k;
  }

  // Compares some columns of other_ with copies: row i of other_ should be row `source(i)` of `from`.
  measure::WrongElements wrong_copies(const std::function<int64_t(int64_t row)>& source, const Tensor& from) const {
    const HostCopy there(other_, memory_), expected(from, memory_);
    const measure::SumCheck check("rows", 0, dtype_, DType::float32);
    measure::WrongElements wrong;
    for (int64_t row = 0; row < there.view().elements() / width_; ++row)
      for (const int64_t col : measure::evenly_spaced(width_, kOrderColumns)) {
        measure::ExactSum sum;
        sum.add(expected.view().as<float>()[source(row) * width_ + col]);
        check.compare(row * width_ + col, there.view().as<float>()[row * width_ + col], sum, wrong);
      }
    return wrong;
  }

  measure::WrongElements wrong_ordered(const Tensor& rows, const float* by) const {
    const HostCopy there(rows, memory_), tokens(hidden_, memory_);
    return wrong_rows({routing_, {there.view(), layout_}, dtype_}, by, tokens.view());
  }
  measure::WrongElements wrong_combined(const Tensor& rows, bool weighed) const {
    const HostCopy there(rows, memory_), weight(routing_.weight, memory_), output(output_, memory_);
    const float* by = weighed ? weight.view().as<float>() : nullptr;
    return wrong_tokens({routing_, {there.view(), layout_}, dtype_}, by, output.view());
  }
  measure::WrongElements wrong_back() const {
    const HostCopy weight(routing_.weight, memory_);
    const measure::WrongElements wrong = wrong_ordered(other_, weight.view().as<float>());
    if (wrong.count > 0) return wrong;
    const HostCopy rows(rows_, memory_), tokens(hidden_, memory_), d_weight(d_weight_, memory_);
    return wrong_dots({routing_, {rows.view(), layout_}, dtype_}, tokens.view(), d_weight.view());
  }

  MemorySpace& memory_;
  const Stopwatch& watch_;
  int64_t width_;
  DType dtype_;
  RankShape rank_;
  Routing routing_;
  RowLayout layout_;
  Tensor hidden_, rows_, other_, output_, d_weight_;
  Array<int32_t> token_of_;
  std::vector<int32_t> tokens_;  // token_of_ on the host
};

}  // namespace

void gpu_order_kernels(const KernelSizes& sizes, int64_t width, LayerDevice& device, const Stopwatch& watch,
                       const KernelGroup& group) {
  Orders orders(sizes, width, device, watch);
  group(orders.kernels());
}

}  // namespace moe::microbench
